import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { Menu } from '@lumino/widgets';
import { age, count } from '@torch-workbench/views';
import type { Slots } from '@torch-workbench/views/graph';
import { CommandIDs } from '../tokens';
import { barButton } from './bar-button';
import type { CaptureView } from './capture';
import { exportButton } from './export-menu';
import { MenuButton } from './menu-button';

/** The controls of a capture's tab: which capture it shows, what to compare it with, what to save. */
export class CaptureBar {
  constructor(
    private readonly view: CaptureView,
    commands: CommandRegistry,
    private readonly trans: TranslationBundle,
  ) {
    this.captures = new MenuButton(commands, (menu) => this.fillCaptures(menu));
    this.compare = new MenuButton(commands, (menu) => this.fillCompare(menu), 'right');
    this.exports = exportButton(commands, () => view.record.kind, trans);
    this.compare.say(trans.__('Compare'));
    this.note.className = 'jp-Workbench-gone';
    this.note.setAttribute('role', 'status');
    const swap = (): void => void commands.execute(CommandIDs.swapSides);
    this.swap = barButton(trans.__('Swap A and B'), '', swap);
    this.swap.append(key('X'));
  }

  get slots(): Slots {
    const { captures, compare, exports, note, swap } = this;
    switch (this.view.address.kind) {
      case 'graph':
      case 'memory':
        return { lead: [beside(captures.element, note)], tail: [compare.element, exports.element] };
      case 'diff':
        return { tail: [beside(swap, note), exports.element] };
    }
  }

  /** Follows the tab's capture, and what its kernel holds. */
  update(): void {
    const { view, trans } = this;
    const { note = '', sentence: gone = '' } = view.gone ?? {};
    if (this.note.textContent !== note) {
      [this.note.textContent, this.note.title] = [note, gone];
    }
    this.captures.say(trans.__('Capture'), trans.__('step %1', count(view.step ?? 0)));
    this.captures.allow(gone, trans.__('Show another capture in this tab ([ and ])'));
    const memory = view.address.kind === 'memory'; // a file is always there to compare with
    const alone =
      memory || view.held.some(({ id }) => id !== view.address.capture)
        ? ''
        : trans.__('There is no other graph to compare with: capture another step first.');
    this.compare.allow(gone || alone, trans.__('What changed between this capture and another'));
    this.swap.setAttribute('aria-disabled', String(gone !== ''));
    this.swap.title = gone || trans.__('Read the comparison the other way round (X)');
  }

  private fillCaptures(menu: Menu): void {
    this.addHeld(menu, CommandIDs.showCapture, true);
    menu.addItem({ type: 'separator' });
    menu.addItem({ command: CommandIDs.olderCapture });
    menu.addItem({ command: CommandIDs.newerCapture });
    menu.addItem({ type: 'separator' });
    menu.addItem({ command: CommandIDs.captureHere });
  }

  private fillCompare(menu: Menu): void {
    this.addHeld(menu, CommandIDs.compareWith, false);
    if (this.view.address.kind === 'memory') {
      menu.addItem({ type: 'separator' });
      menu.addItem({ command: CommandIDs.compareMemoryCapture });
    }
  }

  private addHeld(menu: Menu, command: string, shown: boolean): void {
    const now = Date.now() / 1000;
    for (const { id, step, created_at } of this.view.held) {
      if (shown || id !== this.view.address.capture) {
        const label = this.trans.__('Step %1 · %2 ago', count(step), age(now, created_at));
        menu.addItem({ command, args: { capture: id, label } });
      }
    }
  }

  private readonly captures: MenuButton;
  private readonly compare: MenuButton;
  private readonly exports: MenuButton;
  private readonly swap: HTMLButtonElement;
  /** Beside what is greyed: the reason is visible without pointing at it. */
  private readonly note = document.createElement('span');
}

/** A control with its note, which a bar never breaks apart. */
function beside(control: HTMLElement, note: HTMLElement): HTMLElement {
  const pair = document.createElement('span');
  pair.className = 'jp-Workbench-pair';
  pair.append(control, note);
  return pair;
}

function key(name: string): HTMLElement {
  const element = document.createElement('kbd');
  element.setAttribute('aria-hidden', 'true');
  element.textContent = name;
  return element;
}
