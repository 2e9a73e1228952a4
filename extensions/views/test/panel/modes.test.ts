import type { ModeChoice, ModeState } from '@torch-workbench/records';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { PRECISION } from '../kernel/fake';
import { Mounted } from './mounted';

let panel: Mounted;

beforeEach(() => void vi.useFakeTimers());

afterEach(() => {
  panel.dispose();
  vi.useRealTimers();
});

describe('a mode', () => {
  it('moves the focus with arrows and switches only when pressed', async () => {
    panel = await Mounted.panel();
    panel.radio('fp32').focus();
    panel.press(panel.radio('fp32'), 'ArrowRight');
    expect(document.activeElement).toBe(panel.radio('bf16'));
    expect(panel.kernel.commands()).toEqual([]);
    panel.radio('bf16').click();
    expect(panel.lastCommand).toEqual(['set_mode', { mode: 'precision', value: 'bf16' }]);
  });

  it('shows that a switch is under way until the kernel says it happened', async () => {
    panel = await Mounted.panel();
    panel.radio('bf16').click();
    const group = panel.find('[role=radiogroup]');
    expect(group.getAttribute('aria-busy')).toBe('true');
    expect(panel.radio('fp32').getAttribute('aria-checked')).toBe('true');
    panel.radio('bf16').click();
    expect(panel.kernel.commands()).toHaveLength(1);
    panel.kernel.reply();
    await panel.say({ modes: [{ ...PRECISION, value: 'bf16' }] });
    expect(group.getAttribute('aria-busy')).toBe('false');
    expect(panel.radio('bf16').getAttribute('aria-checked')).toBe('true');
    expect(panel.radio('bf16').classList).toContain('is-set');
  });

  it('shows what is prepared while training goes on, and the value in use gives it up', async () => {
    panel = await Mounted.panel();
    await panel.say({ modes: [{ ...PRECISION, pending: 'bf16' }] });
    const group = panel.find('[role=radiogroup]');
    expect(group.getAttribute('aria-busy')).toBe('true');
    expect(panel.radio('bf16').classList).toContain('is-pending');
    expect(panel.radio('fp32').getAttribute('aria-checked')).toBe('true');
    panel.radio('bf16').click();
    expect(panel.kernel.commands()).toEqual([]);
    panel.radio('fp32').click();
    expect(panel.lastCommand).toEqual(['set_mode', { mode: 'precision', value: 'fp32' }]);
    await panel.say({ modes: [PRECISION] });
    expect(group.getAttribute('aria-busy')).toBe('false');
  });

  it('keeps its buttons while what is known of a choice changes, and says the newest', async () => {
    const said = (why: string) => ({
      modes: [{ ...PRECISION, choices: PRECISION.choices.map((one) => ({ ...one, why })) }],
    });
    panel = await Mounted.panel(said('20 steps'));
    const offered = panel.radio('bf16');
    offered.dispatchEvent(new Event('pointerenter'));
    await panel.say(said('21 steps'));
    expect(panel.radio('bf16')).toBe(offered);
    await vi.advanceTimersByTimeAsync(310);
    expect(panel.find('[role=tooltip]').textContent).toContain('21 steps');
    const described = document.getElementById(offered.getAttribute('aria-describedby') ?? '');
    expect(described?.textContent).toBe('21 steps');
  });

  it('has the rare ones of many choices behind a segment, which are made there', async () => {
    const [fp32, bf16, fp16] = PRECISION.choices;
    const rare = { ...bf16, value: 'fp8', why: 'Emulated.', emulated: true } as ModeChoice;
    const choices = [fp32, bf16, fp16, rare, { ...rare, value: 'mxfp8' }] as ModeChoice[];
    panel = await Mounted.panel({ modes: [{ ...PRECISION, choices }] });
    const radios = (): (string | undefined)[] =>
      [...panel.host.querySelectorAll<HTMLElement>('[role=radio]')].map(
        (one) => one.dataset['value'],
      );
    expect(radios()).toEqual(['fp32', 'bf16']);
    panel.radio('fp32').focus();
    panel.press(panel.radio('fp32'), 'End');
    const more = panel.button('More of Precision: fp16, fp8, mxfp8');
    expect(document.activeElement).toBe(more);
    more.click();
    const list = panel.find('[role=dialog]');
    expect(list.textContent).toContain('no fp16 arithmetic');
    expect(list.textContent).toContain('Emulated.');
    expect([...list.querySelectorAll('li > button')].map((one) => one.textContent)).toEqual([
      'fp8',
      'mxfp8',
    ]);
    panel.button('fp8').click();
    expect(panel.host.querySelector('[role=dialog]')).toBeNull();
    expect(panel.lastCommand).toEqual(['set_mode', { mode: 'precision', value: 'fp8' }]);
    panel.kernel.reply();
    await panel.say({ modes: [{ ...PRECISION, choices, value: 'fp8' }] });
    expect(radios()).toEqual(['fp32', 'bf16', 'fp8']);
    expect(panel.radio('fp8').getAttribute('aria-checked')).toBe('true');
  });

  it('goes back, with the reason under the panel, when the kernel refuses', async () => {
    panel = await Mounted.panel();
    panel.radio('bf16').click();
    panel.kernel.reply('bf16 is not for this device');
    await panel.settle();
    expect(panel.find('.wb-notice').textContent).toContain('bf16 is not for this device');
    expect(panel.find('[role=radiogroup]').getAttribute('aria-busy')).toBe('false');
  });

  it('keeps a choice that cannot run focusable, and explains it', async () => {
    panel = await Mounted.panel();
    const blocked = panel.radio('fp16');
    expect(blocked.getAttribute('aria-disabled')).toBe('true');
    const reason = document.getElementById(blocked.getAttribute('aria-describedby') ?? '');
    expect(reason?.textContent).toBe('This CPU has no fp16 arithmetic.');
    blocked.click();
    const dialog = panel.find('[role=dialog]');
    expect(dialog.textContent).toContain('Precision fp16 is not available here');
    expect(dialog.textContent).toContain('Use bf16 here.');
    expect(dialog.querySelector('code')?.textContent).toBe('pip install something');
    expect(panel.kernel.commands()).toEqual([]);
  });

  it('closes the explanation with Escape and gives the focus back', async () => {
    panel = await Mounted.panel();
    panel.radio('fp16').focus();
    panel.radio('fp16').click();
    expect(panel.find('[role=dialog]').contains(document.activeElement)).toBe(true);
    panel.press(document.activeElement as HTMLElement, 'Escape');
    expect(panel.host.querySelector('[role=dialog]')).toBeNull();
    expect(document.activeElement).toBe(panel.radio('fp16'));
  });

  it('probes the machine again from there', async () => {
    panel = await Mounted.panel();
    panel.radio('fp16').click();
    panel.button('Check again').click();
    expect(panel.lastCommand).toEqual(['probe_modes', {}]);
    panel.kernel.reply();
    await panel.settle();
    expect(panel.find('[role=dialog]').textContent).toMatch(/last checked \d\d:\d\d/);
  });

  const found = (value: string): (typeof PRECISION)['choices'] =>
    PRECISION.choices.map((choice) =>
      choice.value === value
        ? { ...choice, available: true, why: '', remedy: '', commands: [] }
        : choice,
    );

  it('is renewed where it is open once it has become available', async () => {
    panel = await Mounted.panel();
    panel.radio('fp16').click();
    panel.button('Check again').click();
    panel.kernel.reply();
    await panel.say({ modes: [{ ...PRECISION, choices: found('fp16') }] });
    const open = panel.find('.wb-pop').textContent;
    expect(open).not.toContain('not available');
    expect(open).toMatch(/^Precision fp16 is available herelast checked \d\d:\d\d$/);
    expect(panel.radio('fp16').getAttribute('aria-disabled')).toBeNull();
    expect(document.activeElement).toBe(panel.radio('fp16'));
    panel.radio('fp16').click();
    expect(panel.lastCommand).toEqual(['set_mode', { mode: 'precision', value: 'fp16' }]);
    expect(panel.host.querySelector('.wb-pop')).toBeNull();
  });

  it('is renewed where it is open when it lacks something else now', async () => {
    panel = await Mounted.panel();
    panel.radio('fp16').click();
    panel.button('Check again').click();
    panel.kernel.reply();
    const choices = PRECISION.choices.map((choice) =>
      choice.value === 'fp16' ? { ...choice, why: 'Found, but too old.' } : choice,
    );
    await panel.say({ modes: [{ ...PRECISION, choices }] });
    expect(panel.host.querySelectorAll('.wb-pop')).toHaveLength(1);
    expect(panel.find('[role=dialog]').textContent).toContain('Found, but too old.');
    expect(panel.find('[role=dialog]').textContent).toMatch(/last checked \d\d:\d\d/);
    expect(panel.find('[role=dialog]').contains(document.activeElement)).toBe(true);
    expect(panel.radio('fp16').getAttribute('aria-expanded')).toBe('true');
    panel.press(document.activeElement as HTMLElement, 'Escape');
    expect(document.activeElement).toBe(panel.radio('fp16'));
  });

  it('is renewed where its badge has opened it', async () => {
    const warn = { kind: 'warn', text: 'needs fp16 units', detail: '', tooltip: '' } as const;
    panel = await Mounted.panel({ step: 1, modes: [{ ...PRECISION, badge: warn }] });
    panel.button('needs fp16 units').click();
    panel.button('Check again').click();
    panel.kernel.reply();
    const other = { ...warn, text: 'needs a driver' };
    await panel.say({ step: 1, modes: [{ ...PRECISION, badge: other }] });
    expect(panel.find('[role=dialog]').textContent).toContain('Precision needs a driver');
    await panel.say({ step: 1, modes: [{ ...PRECISION, choices: found('fp16') }] });
    expect(panel.find('.wb-pop').textContent).toContain('Precision fp16 is available here');
    expect(document.activeElement).toBe(panel.radio('fp16'));
  });

  it('closes what it says of a choice that is gone', async () => {
    panel = await Mounted.panel();
    panel.radio('fp16').click();
    const choices = PRECISION.choices.filter(({ value }) => value !== 'fp16');
    await panel.say({ modes: [{ ...PRECISION, choices }] });
    expect(panel.host.querySelector('.wb-pop')).toBeNull();
  });

  it('says it above the control where there is no room below', async () => {
    panel = await Mounted.panel();
    const radio = panel.radio('fp16');
    const at = (top: number): void => {
      radio.getBoundingClientRect = () => new DOMRect(50, top, 40, 20);
      panel.host.querySelector('.wb-pop')?.remove();
      radio.click();
    };
    const height = vi.spyOn(HTMLElement.prototype, 'getBoundingClientRect');
    height.mockReturnValue(new DOMRect(0, 0, 296, 200));
    at(100);
    const open = (): HTMLElement => panel.find('.wb-pop');
    expect([open().style.top, open().classList.contains('is-above')]).toEqual(['128px', false]);
    panel.press(open(), 'Escape');
    at(innerHeight - 40);
    expect(open().style.top).toBe(`${innerHeight - 40 - 208}px`);
    expect(open().classList).toContain('is-above');
    height.mockRestore();
  });

  it('opens a text-only reason on hover after a moment, as a tooltip', async () => {
    const choices = PRECISION.choices.map((choice) => ({ ...choice, commands: [] }));
    panel = await Mounted.panel({ modes: [{ ...PRECISION, choices }] });
    panel.radio('fp16').dispatchEvent(new Event('pointerenter'));
    expect(panel.host.querySelector('[role=tooltip]')).toBeNull();
    await vi.advanceTimersByTimeAsync(310);
    expect(panel.find('[role=tooltip]').textContent).toContain('no fp16 arithmetic');
  });

  it('says what a choice costs before it is made, and a press still makes it', async () => {
    const why = 'Measured 56× slower than fp32 on this CPU, in a product of 256 × 256 matrices.';
    const choices = PRECISION.choices.map((choice) =>
      choice.value === 'bf16' ? { ...choice, why, remedy: 'Use fp32 here.' } : choice,
    );
    panel = await Mounted.panel({ modes: [{ ...PRECISION, choices }] });
    const offered = panel.radio('bf16');
    expect(offered.getAttribute('aria-disabled')).toBeNull();
    const described = document.getElementById(offered.getAttribute('aria-describedby') ?? '');
    expect(described?.textContent).toBe(why);
    offered.dispatchEvent(new Event('pointerenter'));
    await vi.advanceTimersByTimeAsync(310);
    const tooltip = panel.find('[role=tooltip]').textContent;
    expect(tooltip).toContain('Precision bf16');
    expect(tooltip).not.toContain('not available');
    expect(tooltip).toContain(why);
    expect(tooltip).toContain('Use fp32 here.');
    offered.click();
    expect(panel.lastCommand).toEqual(['set_mode', { mode: 'precision', value: 'bf16' }]);
  });

  it('says the newest figure of a choice while it is pointed at or focused', async () => {
    const measured = (why: string): { modes: ModeState[] } => ({
      modes: [
        {
          ...PRECISION,
          choices: PRECISION.choices.map((one) => (one.value === 'bf16' ? { ...one, why } : one)),
        },
      ],
    });
    panel = await Mounted.panel(measured('4.0× slower, 20 steps.'));
    panel.radio('bf16').dispatchEvent(new Event('pointerenter'));
    await vi.advanceTimersByTimeAsync(310);
    const open = panel.find('[role=tooltip]');
    await panel.say(measured('3.9× slower, 22 steps.'));
    expect([open.isConnected, open.textContent]).toEqual([
      true,
      'Precision bf16Here3.9× slower, 22 steps.',
    ]);
    const title = open.firstElementChild;
    await panel.say(measured('3.9× slower, 22 steps.'));
    expect(open.firstElementChild).toBe(title);
    panel.radio('bf16').dispatchEvent(new Event('pointerleave'));
    await vi.advanceTimersByTimeAsync(160);
    expect(open.isConnected).toBe(false);
  });

  it('shows its badge with the numbers behind it, and what needs something as a button', async () => {
    const badge = {
      kind: 'good',
      text: '1.4× faster',
      detail: 'max 2e-6',
      tooltip: '31 ms',
    } as const;
    panel = await Mounted.panel({ step: 1, modes: [{ ...PRECISION, badge }] });
    expect(panel.find('.wb-badge.is-good').textContent).toBe('1.4× fastermax 2e-6');
    const place = panel.find('.wb-badge').parentElement as HTMLElement;
    expect(place.title).toBe('max 2e-6\n31 ms');
    const next = { ...badge, tooltip: '32 ms' };
    await panel.say({ step: 2, modes: [{ ...PRECISION, badge: next }] });
    expect([place.isConnected, place.title]).toEqual([true, 'max 2e-6\n32 ms']);
    const warn = { kind: 'warn', text: 'needs fp16 units', detail: '', tooltip: '' } as const;
    await panel.say({ step: 3, modes: [{ ...PRECISION, badge: warn }] });
    expect(place.title).toBe('');
    panel.button('needs fp16 units').click();
    expect(panel.find('[role=dialog]').textContent).toContain('Precision needs fp16 units');
  });
});
