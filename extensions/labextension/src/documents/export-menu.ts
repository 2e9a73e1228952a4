import type { Menu } from '@lumino/widgets';
import type { CaptureKind } from '@torch-workbench/records';
import { CommandIDs } from '../tokens';
import { FORMATS } from './formats';

/** Every file that can be made of a record of this kind, by who makes it. */
export function fillExports(menu: Menu, kind: CaptureKind | null): void {
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
