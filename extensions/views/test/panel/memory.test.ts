import type { Failure } from '@torch-workbench/records';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Mounted } from './mounted';

let panel: Mounted;
beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  panel.dispose();
  vi.useRealTimers();
});

function remedy(name: string, fits: boolean): Failure['remedies'][number] {
  const peak_bytes = fits ? 44 * 2 ** 20 : -1;
  return { name, code: `exp.modes = "${name}"`, peak_bytes, fits, cost: 'Time.', basis: 'Tried.' };
}

const FAILURE: Failure = {
  kind: 'exception',
  title: 'Out of memory: 3.4 MiB asked for in body.2 (forward), step 3, on a 560 MiB card',
  subtitle: 'Step 3 was not applied. Weights and optimizer are those of step 2.',
  message: 'Out of memory on a simulated card',
  source: { filename: 'net.py', line: 11, cell: null, function: 'forward', text: '' },
  scope: 'Net.forward',
  code: [{ line: 11, text: '    return self.body(x)', current: true }],
  values: [],
  traceback: 'Traceback',
  num_frames: 4,
  num_user_frames: 1,
  step: 3,
  memory: [
    { label: 'Asked for', value: '3.4 MiB, aten.gelu in body.2' },
    { label: 'Card', value: '560 MiB, simulated: 48.0 MiB usable' },
  ],
  capture: 'c7',
  remedies: [remedy('bf16', true), remedy('checkpoint body', true), remedy('batch 1', false)],
};

const STATE = { status: 'exception' as const, step: 2, failure: FAILURE, message: 'out of memory' };

describe('after memory ran out', () => {
  it('says what was requested, on which GPU, and at which line', async () => {
    panel = await Mounted.panel(STATE);
    const alert = panel.find('.wb-msg[role=alert]');
    expect(alert.textContent).toContain('3.4 MiB asked for in body.2');
    expect(alert.textContent).toContain('560 MiB, simulated: 48.0 MiB usable');
    expect(alert.querySelector('.ln.is-at')?.textContent).toBe('11    return self.body(x)');
  });

  it('offers what fits, the first of it chosen, and resumes with what is chosen', async () => {
    panel = await Mounted.panel(STATE);
    const boxes = [...panel.host.querySelectorAll<HTMLInputElement>('.wb-remedy input')];
    expect(boxes.map(({ checked }) => checked)).toEqual([true, false, false]);
    expect(boxes.map(({ disabled }) => disabled)).toEqual([false, false, true]);
    expect(panel.find('.wb-remedies').textContent).toContain('bf16 fits, 44 MiB at the peak');
    expect(panel.find('.wb-remedies').textContent).toContain('batch 1 does not fit');
    boxes[1]?.click();
    panel.button('Resume with checkpoint body').click();
    expect(panel.lastCommand).toEqual(['apply_remedy', { index: 1 }]);
    panel.button('Resume as it is').click();
    expect(panel.lastCommand).toEqual(['resume_from_failure', {}]);
  });

  it('keeps the choice while the kernel says the same again', async () => {
    panel = await Mounted.panel(STATE);
    panel.host.querySelectorAll<HTMLInputElement>('.wb-remedy input')[1]?.click();
    await panel.say({ ...STATE, failure: structuredClone(FAILURE) });
    panel.button('Resume with checkpoint body').click();
    expect(panel.lastCommand).toEqual(['apply_remedy', { index: 1 }]);
  });

  it('says that remedies are being tried, and shows them when they come', async () => {
    const message = 'step 3: out of memory; trying what would help: bf16';
    panel = await Mounted.panel({ ...STATE, message, failure: { ...FAILURE, remedies: [] } });
    expect(panel.find('.wb-remedies').textContent).toContain('Being tried now');
    expect(panel.host.querySelector('.wb-actions .is-primary:not([hidden])')).toBeNull();
    await panel.say(STATE);
    expect(panel.find('.wb-remedies .wb-quiet').hidden).toBe(true);
    expect(panel.button('Resume with bf16').hidden).toBe(false);
  });

  it('says so where nothing fits', async () => {
    const failure = { ...FAILURE, remedies: [remedy('batch 1', false)] };
    panel = await Mounted.panel({ ...STATE, failure });
    expect(panel.find('.wb-remedies').textContent).toContain('Nothing that was tried lets');
    expect(panel.host.querySelector('.wb-actions .is-primary:not([hidden])')).toBeNull();
  });

  it('opens the memory of the failed step', async () => {
    panel = await Mounted.panel(STATE);
    const asked: unknown[] = [];
    panel.host.addEventListener('workbench:open', (event) => {
      event.preventDefault();
      asked.push((event as CustomEvent).detail);
    });
    panel
      .find('.wb-msg .wb-actions')
      .querySelectorAll<HTMLElement>('button:not([hidden])')[2]
      ?.click();
    expect(asked).toEqual([{ kind: 'memory', capture: 'c7', experiment: 'e1' }]);
  });
});
