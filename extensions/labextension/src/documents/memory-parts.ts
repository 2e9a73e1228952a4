import type { TranslationBundle } from '@jupyterlab/translation';
import { count } from '@torch-workbench/views';
import type { Overview } from '@torch-workbench/views/overview';
import type { IMemoryPart } from '../server';
import { barButton } from './bar-button';

interface IEvents {
  device: (device: number) => void;
  range: () => void;
}

/** Which device of a memory file is shown, and which range of it; nothing where there is one. */
export class MemoryParts {
  readonly device = document.createElement('select');
  private readonly range: HTMLButtonElement;

  constructor(
    private readonly trans: TranslationBundle,
    events: IEvents,
  ) {
    this.device.className = 'wv-btn jp-Workbench-device';
    this.device.setAttribute('aria-label', trans.__('Device'));
    this.device.title = trans.__('The recording has several devices');
    this.device.hidden = true;
    this.device.addEventListener('change', () => events.device(Number(this.device.value)));
    const title = trans.__('Choose another range of the recording');
    this.range = barButton('', title, () => events.range());
    this.range.hidden = true;
  }

  get elements(): readonly HTMLElement[] {
    return [this.device, this.range];
  }

  show(seen: Overview | null, part: IMemoryPart): void {
    const devices = seen?.devices ?? [];
    this.device.hidden = devices.length < 2;
    this.device.replaceChildren(
      ...devices.map((number) => new Option(`cuda:${number}`, String(number))),
    );
    this.device.value = String(part.device ?? devices[0] ?? '');
    const { start, end } = part;
    this.range.hidden = seen === null || start === undefined || end === undefined;
    if (seen !== null && start !== undefined && end !== undefined) {
      this.range.textContent = this.trans.__(
        'Events %1 to %2 of %3',
        count(start),
        count(end),
        count(seen.num_events),
      );
    }
  }
}

/** The number of the device that an overview is of; undefined of a saved record, which has one. */
export function deviceOf(seen: Overview | null): number | undefined {
  const number = Number(seen?.device.split(':')[1]);
  return seen !== null && seen.devices.includes(number) ? number : undefined;
}

/** Chooses another file, and opens what differs. */
export function compareButton(run: () => void, trans: TranslationBundle): HTMLButtonElement {
  const title = trans.__('Open whose bytes differ at the peaks of this file and another');
  return barButton(trans.__('Compare with…'), title, run);
}
