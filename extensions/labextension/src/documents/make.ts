import type { TranslationBundle } from '@jupyterlab/translation';
import { pngOf, svgOf } from '@torch-workbench/views/graph';
import { CaptureView } from './capture';
import { ending, type IFormat, pythonLine } from './formats';
import type { RecordPanel } from './record-panel';
import { fileName } from './save';

/** Why a file of this format cannot be made of what a tab shows; empty where it can. */
export function whyNot(panel: RecordPanel, format: IFormat, trans: TranslationBundle): string {
  const { kind, bytes, shown } = panel.record;
  if (kind === null || bytes === null) {
    return trans.__('There is nothing to save yet.');
  }
  if (!format.kinds.includes(kind)) {
    return trans.__('A %1 record has no such form.', kind);
  }
  if (format.by === 'view' && shown === null) {
    return trans.__('Nothing is drawn yet.');
  }
  if (format.by === 'kernel' && storeOf(panel) === null) {
    return trans.__('Needs a kernel. In Python: %1', lineFor(panel, format));
  }
  return '';
}

/** The Python line that makes this file of the tab's record, once that is saved. */
export function lineFor(panel: RecordPanel, format: IFormat): string {
  const kind = panel.record.kind ?? 'graph';
  return pythonLine(
    panel.file ?? fileName(panel.place.name, `${kind}.safetensors`, 1),
    kind,
    format,
  );
}

/** Makes the file. Rejects with one sentence when it cannot be made. */
export async function make(
  panel: RecordPanel,
  format: IFormat,
  trans: TranslationBundle,
): Promise<{ bytes: ArrayBuffer; ending: string }> {
  const reason = whyNot(panel, format, trans);
  const { kind, bytes, shown } = panel.record;
  if (reason !== '' || kind === null || bytes === null) {
    throw new Error(reason);
  }
  const named = (made: ArrayBuffer) => ({ bytes: made, ending: ending(format, kind) });
  if (format.by === 'record') {
    return named(bytes);
  }
  if (format.by === 'view' && shown !== null) {
    const picture = format.extension === 'png' ? await pngOf(shown) : new Blob([svgOf(shown)]);
    return named(await picture.arrayBuffer());
  }
  const store = storeOf(panel);
  if (store === null || !(panel instanceof CaptureView)) {
    throw new Error(whyNot(panel, format, trans));
  }
  const { experiment, capture } = panel.address;
  return named(await store.fetchExport(experiment, capture, format.extension));
}

/** The kernel that holds what a tab shows; null for a file's tab, and when it is gone. */
function storeOf(panel: RecordPanel): CaptureView['store'] {
  return panel instanceof CaptureView ? panel.store : null;
}
