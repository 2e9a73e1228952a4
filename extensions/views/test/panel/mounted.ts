import type { ExperimentState, MemoryChart } from '@torch-workbench/records';
import { vi } from 'vitest';
import { KernelStore } from '../../src/kernel';
import { mountPanel, type PanelOptions } from '../../src/panel';
import { FakeKernel, state } from '../kernel/fake';

/** A panel on a real store, with the kernel played by hand. */
export class Mounted {
  readonly kernel = new FakeKernel();
  readonly store = new KernelStore({ connect: this.kernel.connect });
  readonly host = document.body.appendChild(document.createElement('div'));
  private unmount: () => void = () => undefined;

  static async panel(
    change: Partial<ExperimentState> = {},
    options: Partial<PanelOptions> = {},
    onPage = true,
  ): Promise<Mounted> {
    const mounted = new Mounted();
    if (!onPage) mounted.host.remove();
    const { host, store, kernel } = mounted;
    mounted.unmount = mountPanel(host, store, { experiment: 'e1', name: 'exp', ...options });
    await mounted.settle();
    kernel.hello();
    await mounted.say(change);
    return mounted;
  }

  /** The kernel says a state; a frame passes. */
  async say(change: Partial<ExperimentState>): Promise<void> {
    this.kernel.say('state', { experiment: 'e1', state: state(change) });
    await this.settle();
  }

  /** Promises settle and one frame passes. */
  async settle(): Promise<void> {
    await vi.advanceTimersByTimeAsync(20);
  }

  /** The command the kernel was last sent, as `[name, args]`. */
  get lastCommand(): unknown {
    const last = this.kernel.sent.filter((one) => one['type'] === 'command').at(-1);
    return last && [last['name'], last['args']];
  }

  find<E extends HTMLElement = HTMLElement>(selector: string): E {
    const found = this.host.querySelector<E>(selector);
    if (!found) throw new Error(`nothing matches ${selector}`);
    return found;
  }

  /** The button that shows this word, or has it as its label. */
  button(name: string): HTMLButtonElement {
    const all = [...this.host.querySelectorAll('button')];
    const found = all.find((one) =>
      [one.textContent, one.getAttribute('aria-label')].includes(name),
    );
    if (!found) throw new Error(`no button ${name}`);
    return found;
  }

  radio(value: string): HTMLButtonElement {
    return this.find(`[role=radio][data-value=${value}]`);
  }

  press(el: HTMLElement, key: string): boolean {
    return el.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
  }

  dispose(): void {
    this.unmount();
    this.store.dispose();
    this.host.remove();
  }
}

export const CHART: MemoryChart = {
  schema: 'workbench.memory_chart/1',
  step: 7,
  device: 'cpu',
  basis: 'requested bytes of storages',
  num_points: 2,
  bytes: new Float32Array(14).fill(2 ** 20),
  phases: [{ name: 'forward', start: 0, end: 2 }],
  peak_point: 1,
  peak_bytes: 7 * 2 ** 20,
  peak_label: 'forward of head',
  at_peak: Array<number>(7).fill(2 ** 20),
  reserved_bytes: -1,
};
