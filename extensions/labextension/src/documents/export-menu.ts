import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { Menu } from '@lumino/widgets';
import type { CaptureKind } from '@torch-workbench/records';
import { CommandIDs } from '../tokens';
import { FORMATS } from './formats';
import { MenuButton } from './menu-button';

/** The button whose menu has every file that can be made of the record in a tab. */
export function exportButton(
  commands: CommandRegistry,
  kind: () => CaptureKind | null,
  trans: TranslationBundle,
): MenuButton {
  const button = new MenuButton(commands, (menu) => fill(menu, kind()), 'right');
  button.say(trans.__('Export'));
  button.allow('', trans.__('Save what is shown, or all of it, as a file'));
  return button;
}

/** Grouped by who makes it: the browser, the kernel, or neither. */
function fill(menu: Menu, kind: CaptureKind | null): void {
  let maker = '';
  for (const { id, by, kinds } of FORMATS) {
    if (kind !== null && kinds.includes(kind)) {
      if (maker !== '' && maker !== by) {
        menu.addItem({ type: 'separator' });
      }
      maker = by;
      menu.addItem({ command: CommandIDs.exportAs, args: { format: id } });
    }
  }
  menu.addItem({ type: 'separator' });
  menu.addItem({ command: CommandIDs.copyExportLine });
}
