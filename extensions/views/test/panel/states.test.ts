import type { Failure } from '@torch-workbench/records';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { saferModes } from '../../src/panel/nan-row';
import { PRECISION } from '../kernel/fake';
import { Mounted } from './mounted';

let panel: Mounted;

beforeEach(() => void vi.useFakeTimers());

afterEach(() => {
  panel.dispose();
  vi.useRealTimers();
});

const FAILURE: Failure = {
  kind: 'exception',
  title: 'Cell [2], line 11: RuntimeError',
  subtitle: 'Step 187 was not applied.',
  message: 'mat1 and mat2 shapes cannot be multiplied',
  source: { filename: '', line: 11, cell: 2, function: 'forward', text: '' },
  scope: 'Net.forward',
  code: [{ line: 11, text: '    early = self.exit(h)', current: true }],
  values: [{ label: 'h', value: '[100, 64] bf16' }],
  traceback: 'Traceback\n  cell [2], line 11',
  num_frames: 23,
  num_user_frames: 3,
  step: 187,
  capture: '',
  memory: [],
  remedies: [],
};
const ROW = { old_shape: '', new_shape: '', kind: 'parameter', note: '' } as const;
const CAPTURE = {
  id: 'c9',
  kind: 'graph',
  step: 4,
  against_step: null,
  num_bytes: 9,
  created_at: 1,
  summary: '',
} as const;

describe('what the panel shows instead of the charts', () => {
  it('before the first run: what will run and the two next clicks', async () => {
    panel = await Mounted.panel();
    expect(panel.find('.wb-empty').textContent).toContain('Train runs 3 epochs');
    expect(panel.find('.wb-empty').textContent).toContain('Net, 1.0 k parameters');
    expect(panel.host.querySelector('.wb-charts')).toBeNull();
    await panel.say({ status: 'training', step: 1 });
    expect(panel.host.querySelector('.wb-empty')).toBeNull();
    expect(panel.find('.wb-charts').textContent).toContain('Loss');
  });

  it('after the code was mended: that the model is the old one, and what swaps in the new', async () => {
    const newer = { text: 'The model that failed is the old one.', code: 'exp.model = Net()' };
    const failed = { status: 'exception', step: 186, failure: FAILURE } as const;
    panel = await Mounted.panel(failed);
    const primary = (): string =>
      panel.find('.wb-actions .is-primary:not([hidden])').textContent ?? '';
    expect(panel.find('.wb-newer').hidden).toBe(true);
    expect(primary()).toBe('Resume from last good step');
    await panel.say({ ...failed, newer_model: newer });
    expect(panel.find('.wb-newer').textContent).toBe(
      'The model that failed is the old one. exp.model = Net()',
    );
    expect(panel.host.querySelectorAll('.wb-actions .is-primary:not([hidden])')).toHaveLength(1);
    expect(primary()).toBe('Swap in the new model and resume');
    panel.find('.wb-actions .is-primary:not([hidden])').click();
    expect(panel.lastCommand).toEqual(['swap_in', {}]);
    await panel.say({ ...failed, newer_model: { ...newer, code: '' } });
    expect(primary()).toBe('Resume from last good step');
    expect(panel.find('.wb-newer').textContent?.trim()).toBe(newer.text);
  });

  it('after an exception: an alert with their line, and the way back', async () => {
    panel = await Mounted.panel({ status: 'exception', step: 186, failure: FAILURE });
    const alert = panel.find('.wb-msg[role=alert]');
    expect(alert.textContent).toContain('Cell [2], line 11: RuntimeError');
    expect(alert.querySelector('.ln.is-at')?.textContent).toBe('11    early = self.exit(h)');
    expect(alert.textContent).toContain('23 frames, 3 of them yours');
    expect(panel.button('Train').classList).not.toContain('is-primary');
    panel.button('Show full traceback').click();
    expect(panel.find('.wb-traceback').textContent).toBe(FAILURE.traceback);
    panel.button('Resume from last good step').click();
    expect(panel.lastCommand).toEqual(['resume_from_failure', {}]);
  });

  it('folds the modes to a line under a message, until requested', async () => {
    panel = await Mounted.panel({ status: 'exception', step: 186, failure: FAILURE });
    expect(panel.find('.wb-modes').hidden).toBe(true);
    expect(panel.find('.wb-modes-line').textContent).toContain('precision fp32');
    panel.button('Show modes').click();
    expect(panel.find('.wb-modes').hidden).toBe(false);
    expect(document.activeElement).toBe(panel.radio('fp32'));
  });

  it('after a NaN: remedies as choices, sent only when ticked', async () => {
    const modes = [{ ...PRECISION, value: 'bf16' }];
    const failure = { ...FAILURE, kind: 'nan' as const, title: 'Loss became NaN at step 233' };
    panel = await Mounted.panel({ status: 'nan', step: 232, failure, modes, learning_rate: 1e-2 });
    const [precision, slower] = [
      ...panel.host.querySelectorAll<HTMLInputElement>('.wb-check input'),
    ];
    expect(panel.find('.wb-actions').textContent).toContain('with fp32');
    expect(panel.find('.wb-actions').textContent).toContain('with learning rate 5.0e-3');
    await panel.say({ status: 'nan', step: 232, failure, modes, learning_rate: 1e30 });
    expect(panel.find('.wb-actions').textContent).toContain('with learning rate 1.0e-1');
    await panel.say({ status: 'nan', step: 232, failure, modes, learning_rate: 1e-2 });
    expect([precision?.checked, slower?.checked]).toEqual([true, false]);
    slower?.click();
    panel.button('Resume from last good step').click();
    expect(panel.lastCommand).toEqual(['resume_from_failure', { modes: '', learning_rate: 0.005 }]);
  });

  it('names every changed mode when it proposes a wider precision', () => {
    const compile = { ...PRECISION, name: 'compile', value: 'blocks', default: 'off' };
    const fp16 = { ...PRECISION, value: 'fp16' };
    expect(saferModes([compile, fp16])).toEqual({
      value: 'bf16',
      modes: 'compile:blocks+precision:bf16',
    });
    expect(saferModes([compile, PRECISION])).toBeNull();
  });
});

describe('without a kernel', () => {
  it('keeps the last picture, says what to do, and disables what would send a command', async () => {
    panel = await Mounted.panel({ status: 'training', step: 12 });
    panel.kernel.hangUp('kernel restarted: run the cell again', true);
    await panel.settle();
    expect(panel.find('.wb-status').textContent).toContain('kernel restarted: run the cell again');
    expect(panel.find('.wb-stats').textContent).toContain('12 / 30');
    expect(panel.find('.wb-stats .wb-state').textContent).toBe('disconnected');
    expect(panel.button('Train').title).toBe('kernel restarted: run the cell again');
    expect(panel.find('.wb-panel').getAttribute('aria-label')).toMatch(
      /, training at last; kernel restarted: run the cell again$/,
    );
    panel.button('Stop').click();
    panel.radio('bf16').click();
    expect(panel.kernel.commands()).toEqual([]);
  });

  it('says so when the kernel knows nothing of the experiment', async () => {
    panel = await Mounted.panel({ status: 'paused', step: 12 });
    panel.kernel.hello([]);
    await panel.settle();
    expect(panel.find('.wb-status').textContent).toContain('kernel restarted: run the cell again');
    expect(panel.find('.wb-stats').textContent).toContain('12 / 30');
  });

  it('keeps what an experiment reached that the kernel has released, and says so', async () => {
    panel = await Mounted.panel({ status: 'finished', step: 30 });
    panel.kernel.say('removed', { experiment: 'e1' });
    await panel.settle();
    expect(panel.find('.wb-status').textContent).toContain('no variable refers to it any more');
    expect(panel.find('.wb-stats').textContent).toContain('30 / 30');
    expect(panel.button('Train').title).toContain('no longer in the kernel');
    panel.kernel.hello([]);
    await panel.settle();
    expect(panel.find('.wb-status').textContent).toContain('no longer in the kernel');
  });

  it('waits in words before the first answer', async () => {
    panel = new Mounted();
    const { mountPanel } = await import('../../src/panel');
    const unmount = mountPanel(panel.host, panel.store, { experiment: 'e1', name: 'exp' });
    expect(panel.find('.wb-waiting').textContent).toBe('Connecting to exp');
    await panel.settle();
    panel.kernel.hello([]);
    await panel.settle();
    expect(panel.find('.wb-waiting').textContent).toBe(
      'exp is not in this kernel: run the cell again',
    );
    unmount();
  });
});

describe('views and status', () => {
  it('requests a tab, and shows the view below where none can be opened', async () => {
    const closed = vi.fn();
    const inline = vi.fn((_request, host: HTMLElement) => {
      host.textContent = 'the graph';
      return closed;
    });
    panel = await Mounted.panel({ step: 4, captures: [CAPTURE] }, { inline });
    const seen = vi.fn((event: Event) => event.preventDefault());
    panel.host.addEventListener('workbench:open', seen, { once: true });
    panel.button('Graph').click();
    const event = seen.mock.calls[0]?.[0] as CustomEvent;
    expect(event.detail).toEqual({ kind: 'graph', experiment: 'e1', capture: 'c9' });
    expect(inline).not.toHaveBeenCalled();
    panel.button('Graph').click();
    expect(panel.find('.wb-inline').textContent).toContain('the graph');
    panel.button('Close this view').click();
    expect(closed).toHaveBeenCalledOnce();
    expect(panel.find('.wb-inline').hidden).toBe(true);
  });

  it('captures the next step first when there is nothing to open', async () => {
    panel = await Mounted.panel({ step: 4, status: 'paused' });
    const seen = vi.fn((event: Event) => event.preventDefault());
    panel.host.addEventListener('workbench:open', seen);
    panel.button('Graph').click();
    expect(panel.lastCommand).toEqual(['capture', { what: 'graph' }]);
    panel.kernel.reply();
    await panel.say({ step: 5, status: 'paused', captures: [CAPTURE] });
    expect((seen.mock.calls[0]?.[0] as CustomEvent).detail.capture).toBe('c9');
    await panel.say({ step: 5, status: 'paused', captures: [CAPTURE] });
    expect(seen).toHaveBeenCalledOnce();
  });

  it('captures the next step of a run that trains, whatever is held', async () => {
    panel = await Mounted.panel({ step: 40, status: 'training', captures: [CAPTURE] });
    const seen = vi.fn((event: Event) => event.preventDefault());
    panel.host.addEventListener('workbench:open', seen);
    expect(panel.button('Graph').title).toBe('Capture the next step and open its graph');
    panel.button('Graph').click();
    expect(panel.lastCommand).toEqual(['capture', { what: 'graph' }]);
    panel.kernel.reply();
    await panel.say({ step: 41, status: 'training', captures: [CAPTURE] });
    expect(panel.button('Graph').title).toBe('Capturing the next step');
    expect(seen).not.toHaveBeenCalled();
    const later = { ...CAPTURE, id: 'c10', step: 42, created_at: CAPTURE.created_at + 1 };
    await panel.say({ step: 42, status: 'training', captures: [CAPTURE, later] });
    expect((seen.mock.calls[0]?.[0] as CustomEvent).detail.capture).toBe('c10');
    await panel.say({ step: 42, status: 'finished', captures: [CAPTURE, later] });
    expect(panel.button('Graph').title).toBe('Open the graph of step 42, the newest captured');
    expect(seen).toHaveBeenCalledOnce();
  });

  it('keeps what a command was refused for until training goes on', async () => {
    panel = await Mounted.panel({ step: 4, status: 'exception', failure: FAILURE });
    panel.button('Resume from last good step').click();
    panel.kernel.reply('it is closed');
    await panel.settle();
    expect(panel.find('.wb-notice').textContent).toContain('it is closed');
    await panel.say({ step: 4, status: 'training' });
    expect(panel.find('.wb-notice').hidden).toBe(true);
  });

  it('computes the graph of now where the newest capture is an old one, but not after a failure', async () => {
    const over = { step: 160, status: 'finished', captures: [CAPTURE] } as const;
    panel = await Mounted.panel(over);
    const seen = vi.fn((event: Event) => event.preventDefault());
    panel.host.addEventListener('workbench:open', seen);
    panel.button('Graph').click();
    expect(seen).not.toHaveBeenCalled();
    expect(panel.lastCommand).toEqual(['capture', { what: 'graph' }]);
    panel.kernel.reply();
    await panel.say(over);
    const raised = 'the step for a capture raised ValueError: no';
    await panel.say({ ...over, message: raised });
    expect((seen.mock.calls[0]?.[0] as CustomEvent).detail.capture).toBe('c9');
    const next = { ...CAPTURE, id: 'c10', step: 161, created_at: 2 };
    await panel.say({ ...over, captures: [CAPTURE, next] });
    expect(panel.button('Graph').title).toBe('Open the graph of step 161, the newest captured');
    await panel.say({ ...over, status: 'exception', failure: FAILURE });
    expect(panel.button('Graph').title).toBe('Open the graph of step 4, the newest captured');
  });

  it('opens the newest capture when the run ends before another step', async () => {
    panel = await Mounted.panel({ step: 40, status: 'training', captures: [CAPTURE] });
    const seen = vi.fn((event: Event) => event.preventDefault());
    panel.host.addEventListener('workbench:open', seen);
    panel.button('Graph').click();
    panel.kernel.reply();
    await panel.say({ step: 40, status: 'finished', captures: [CAPTURE] });
    expect((seen.mock.calls[0]?.[0] as CustomEvent).detail.capture).toBe('c9');
  });

  it('speaks at most one status every five seconds, the newest', async () => {
    panel = await Mounted.panel({ message: 'one' });
    const spoken = panel.find('.wb-status [role=status]');
    expect(spoken.textContent).toBe('one');
    await panel.say({ message: 'two' });
    await panel.say({ message: 'three' });
    expect(panel.find('.wb-status [aria-hidden=true]:not(svg)').textContent).toBe('three');
    expect(spoken.textContent).toBe('one');
    await vi.advanceTimersByTimeAsync(5_000);
    expect(spoken.textContent).toBe('three');
  });

  it('counts what the disk could not take', async () => {
    panel = await Mounted.panel({ dropped_points: 12 });
    expect(panel.find('.wb-status').textContent).toContain('12 metric points were lost');
  });

  it('has what is noted behind a button, which is renewed where it is open', async () => {
    const ranks = 'every rank computes whole batches: steps get no faster by ranks';
    panel = await Mounted.panel();
    const button = panel.find('.wb-notes-btn');
    expect(button.hidden).toBe(true);
    await panel.say({ notes: [ranks] });
    expect([button.hidden, button.textContent, button.title]).toEqual([false, '1 note', ranks]);
    button.click();
    const open = panel.find('[role=dialog]');
    expect(open.textContent).toBe(`What to know of this experiment${ranks}`);
    await panel.say({ notes: [ranks, 'the loader begins anew'] });
    expect(open.isConnected).toBe(true);
    expect([...open.querySelectorAll('li')].map((one) => one.textContent)).toEqual([
      ranks,
      'the loader begins anew',
    ]);
    expect(button.textContent).toBe('2 notes');
    await panel.say({ notes: [] });
    expect([open.isConnected, button.hidden]).toEqual([false, true]);
  });

  it('says what became of every parameter after a hot swap', async () => {
    panel = await Mounted.panel({
      step: 3,
      carried: [
        { ...ROW, name: 'stem.weight', outcome: 'carried', old_shape: '8×3', new_shape: '8×3' },
        { ...ROW, name: 'gate.weight', outcome: 'new', new_shape: '1×8' },
        { ...ROW, name: 'mask', outcome: 'new', kind: 'buffer', note: 'not persistent' },
      ],
    });
    const row = panel.find('.wb-carry');
    expect(row.textContent).toContain('Model swapped: 1 carried, 1 new');
    const lines = [...row.querySelectorAll('tbody tr')].map((line) => line.textContent);
    expect(lines).toEqual([
      'gate.weightnew1×8',
      'masknew: not persistent',
      'stem.weightcarried8×38×3',
    ]);
  });
});

describe('hostile names', () => {
  const EVIL = `<img src=x onerror=alert(1)>\n${'x'.repeat(10_000)}`;

  it('stay text, on one line, shortened', async () => {
    panel = await Mounted.panel({
      name: EVIL,
      model: EVIL,
      loss_name: EVIL,
      message: EVIL,
      status: 'exception',
      step: 3,
      markers: [{ step: 2, text: EVIL }],
      facts: [{ label: EVIL, value: EVIL }],
      failure: {
        ...FAILURE,
        title: EVIL,
        message: EVIL,
        scope: EVIL,
        code: [{ line: 1, text: EVIL, current: true }],
        values: [{ label: EVIL, value: EVIL }],
      },
    });
    expect(panel.host.querySelector('img')).toBeNull();
    const section = panel.find('.wb-panel');
    expect(section.getAttribute('aria-label')?.length).toBeLessThan(200);
    expect(panel.find('.wb-msg h3').textContent).toMatch(/^<img src=x onerror=alert\(1\)> x+…$/);
    expect(section.textContent?.length).toBeLessThan(12_000);
  });
});
