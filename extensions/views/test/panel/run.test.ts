import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Mounted } from './mounted';

let panel: Mounted;

beforeEach(() => void vi.useFakeTimers());

afterEach(() => {
  panel.dispose();
  expect(document.body.childElementCount).toBe(0);
  vi.useRealTimers();
});

function disabled(name: string): boolean {
  return panel.button(name).getAttribute('aria-disabled') === 'true';
}

describe('the run row', () => {
  it('trains with the epochs in the field, and offers only what can be done', async () => {
    panel = await Mounted.panel();
    expect([disabled('Pause'), disabled('Step'), disabled('Stop')]).toEqual([true, false, true]);
    panel.button('Train').click();
    expect(panel.lastCommand).toEqual(['run', { epochs: 3 }]);
    panel.button('Stop').click();
    expect(panel.kernel.commands()).toEqual(['run']);
  });

  it('is drawn whole before it is on the page: a notebook takes cells out of it', async () => {
    panel = await Mounted.panel({ epochs: 7 }, {}, false);
    document.body.append(panel.host);
    panel.button('Train').click();
    expect(panel.lastCommand).toEqual(['run', { epochs: 7 }]);
  });

  it('says why a button cannot be pressed, and keeps it reachable', async () => {
    panel = await Mounted.panel({ status: 'training', step: 4, started_at: 0 });
    expect(panel.button('Training').title).toMatch(/^Training since \d\d:\d\d\. Pause or Stop/);
    expect(panel.button('Step').title).toBe('Pause first, then step');
    expect(panel.button('Step').disabled).toBe(false);
  });

  it('resumes a paused run', async () => {
    panel = await Mounted.panel({ status: 'paused', step: 4 });
    panel.button('Resume').click();
    expect(panel.lastCommand).toEqual(['resume', {}]);
  });

  it('keeps the focus and the elements while figures move', async () => {
    panel = await Mounted.panel({ status: 'training', step: 4 });
    const pause = panel.button('Pause');
    pause.focus();
    const before = [...panel.host.querySelectorAll('.wb-run *')];
    await panel.say({ status: 'training', step: 5, samples_per_s: 1900, seconds_left: 90 });
    expect(panel.find('.wb-stats').textContent).toContain('1.9k samples/s');
    expect(panel.find('.wb-stats').textContent).toContain('1 min 30 s left');
    expect(document.activeElement).toBe(pause);
    expect([...panel.host.querySelectorAll('.wb-run *')]).toEqual(before);
  });

  it('has one tab stop; arrows move inside and do not press', async () => {
    panel = await Mounted.panel();
    const toolbar = panel.find('[role=toolbar][aria-label=Run]');
    const stops = (): (string | null)[] =>
      [...toolbar.querySelectorAll<HTMLElement>('[tabindex="0"]')].map((one) => one.textContent);
    expect(stops()).toEqual(['Train']);
    panel.button('Train').focus();
    panel.press(panel.button('Train'), 'ArrowRight');
    expect(document.activeElement).toBe(panel.button('Pause'));
    panel.press(panel.button('Pause'), 'End');
    expect(stops()).toEqual(['Stop']);
    expect(panel.kernel.commands()).toEqual([]);
  });

  it('describes progress in words', async () => {
    panel = await Mounted.panel({ status: 'training', step: 12, epoch: 2 });
    const bar = panel.find('[role=progressbar]');
    expect(bar.getAttribute('aria-valuetext')).toBe('step 12 of 30, epoch 2 of 3');
    expect(panel.host.querySelectorAll('.wb-bar > b')).toHaveLength(2);
  });
});

describe('epochs and learning rate', () => {
  it('applies epochs on Enter, reverts on Escape, refuses nonsense in words', async () => {
    panel = await Mounted.panel();
    const field = panel.find<HTMLInputElement>('.wb-epochs');
    field.value = '5';
    panel.press(field, 'Enter');
    expect(panel.lastCommand).toEqual(['set_epochs', { epochs: 5 }]);
    field.value = '2.5';
    panel.press(field, 'Enter');
    expect(panel.find('.wb-notice').textContent).toContain('whole number from 1');
    panel.button('Train').click();
    expect(panel.kernel.commands()).toEqual(['set_epochs']);
    panel.press(field, 'Escape');
    expect(field.value).toBe('5');
    expect(panel.find('.wb-notice').hidden).toBe(true);
  });

  it('has room for every digit of the epochs and of the learning rate', async () => {
    panel = await Mounted.panel({ epochs: 100_000, learning_rate: 0.00125 });
    const digits = (of: string): string => panel.find(of).style.getPropertyValue('--wb-length');
    expect([digits('.wb-epochs'), digits('.wb-rate')]).toEqual(['6', '6']);
    const field = panel.find<HTMLInputElement>('.wb-epochs');
    field.focus();
    field.value = '1000000';
    field.dispatchEvent(new Event('input'));
    expect(digits('.wb-epochs')).toBe('7');
    panel.press(field, 'Escape');
    expect(digits('.wb-epochs')).toBe('6');
  });

  it('does not overwrite a number that is being typed', async () => {
    panel = await Mounted.panel();
    const field = panel.find<HTMLInputElement>('.wb-epochs');
    field.focus();
    field.value = '12';
    await panel.say({ epochs: 3, step: 1 });
    expect(field.value).toBe('12');
  });

  it('sends the learning rate once a drag has settled, and speaks it', async () => {
    panel = await Mounted.panel();
    const slider = panel.find<HTMLInputElement>('.wb-range');
    for (const exponent of ['-2.5', '-2.2', '-2']) {
      slider.value = exponent;
      slider.dispatchEvent(new Event('input'));
    }
    await vi.advanceTimersByTimeAsync(300);
    expect(panel.kernel.commands()).toEqual(['set_learning_rate']);
    expect(panel.lastCommand).toEqual(['set_learning_rate', { value: 0.01 }]);
    expect(slider.getAttribute('aria-valuetext')).toBe('1.0e-2');
  });

  it('moves a decade with Page Up and takes a typed number on Enter', async () => {
    panel = await Mounted.panel();
    panel.press(panel.find('.wb-range'), 'PageUp');
    await vi.advanceTimersByTimeAsync(300);
    expect(panel.lastCommand).toEqual(['set_learning_rate', { value: 0.01 }]);
    const field = panel.find<HTMLInputElement>('.wb-rate');
    field.value = '3e-4';
    panel.press(field, 'Enter');
    await vi.advanceTimersByTimeAsync(300);
    expect(panel.lastCommand).toEqual(['set_learning_rate', { value: 3e-4 }]);
  });
});
