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
    expect(panel.asked).toEqual(['set_mode', { mode: 'precision', value: 'bf16' }]);
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
    expect(panel.asked).toEqual(['set_mode', { mode: 'precision', value: 'fp32' }]);
    await panel.say({ modes: [PRECISION] });
    expect(group.getAttribute('aria-busy')).toBe('false');
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
    expect(panel.asked).toEqual(['probe_modes', {}]);
    panel.kernel.reply();
    await panel.settle();
    expect(panel.find('[role=dialog]').textContent).toMatch(/last checked \d\d:\d\d/);
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
    expect(panel.asked).toEqual(['set_mode', { mode: 'precision', value: 'bf16' }]);
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
    expect(panel.find('.wb-badge').title).toBe('max 2e-6\n31 ms');
    const warn = { kind: 'warn', text: 'needs fp16 units', detail: '', tooltip: '' } as const;
    await panel.say({ step: 1, modes: [{ ...PRECISION, badge: warn }] });
    panel.button('needs fp16 units').click();
    expect(panel.find('[role=dialog]').textContent).toContain('Precision needs fp16 units');
  });
});
