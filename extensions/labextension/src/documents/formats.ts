import type { TranslationBundle } from '@jupyterlab/translation';
import type { CaptureKind } from '@torch-workbench/records';

/** A file that can be made of a record; `workbench/panel/channel/exports.py` makes those of a kernel. */
export interface IFormat {
  id: string;
  /** Who makes it: the browser from what it shows, the kernel from the record, or neither. */
  by: 'view' | 'kernel' | 'record';
  /** Of the kind's own name it makes a file's ending: `graph` -> `.graph.pdf`. */
  extension: string;
  kinds: readonly CaptureKind[];
}

const GRAPHS = ['graph', 'diff'] as const;
const ALL = ['graph', 'diff', 'memory'] as const;

/** In the order of the menu. */
export const FORMATS: readonly IFormat[] = [
  { id: 'view-svg', by: 'view', extension: 'svg', kinds: GRAPHS },
  { id: 'view-png', by: 'view', extension: 'png', kinds: GRAPHS },
  { id: 'svg', by: 'kernel', extension: 'svg', kinds: GRAPHS },
  { id: 'png', by: 'kernel', extension: 'png', kinds: ALL },
  { id: 'pdf', by: 'kernel', extension: 'pdf', kinds: ALL },
  { id: 'dot', by: 'kernel', extension: 'dot', kinds: GRAPHS },
  { id: 'json', by: 'kernel', extension: 'json', kinds: GRAPHS },
  { id: 'record', by: 'record', extension: 'safetensors', kinds: ALL },
];

export function formatOf(id: unknown): IFormat {
  const found = FORMATS.find((one) => one.id === id);
  if (found === undefined) {
    const valid = FORMATS.map((one) => one.id).join(', ');
    throw new Error(`There is no export format ${String(id)}; valid: ${valid}`);
  }
  return found;
}

/** What a format is called in menus and in the command palette. */
export function formatLabel(
  { id }: IFormat,
  kind: CaptureKind | null,
  trans: TranslationBundle,
): string {
  const memory = kind === 'memory';
  switch (id) {
    case 'view-svg':
      return trans.__('Picture of What Is Shown (SVG)');
    case 'view-png':
      return trans.__('Picture of What Is Shown (PNG)');
    case 'svg':
      return trans.__('Whole Graph (SVG)');
    case 'png':
      return memory ? trans.__('Chart (PNG)') : trans.__('Whole Graph (PNG)');
    case 'pdf':
      return memory ? trans.__('Chart (PDF)') : trans.__('Whole Graph (PDF)');
    case 'dot':
      return trans.__('Graphviz (DOT)');
    case 'json':
      return trans.__('Model Explorer (JSON)');
    default:
      return trans.__('Record (safetensors)');
  }
}

/** `view.svg`, `graph.pdf`, `memory.safetensors`: what stands behind the name and a dot. */
export function ending({ by, extension }: IFormat, kind: CaptureKind): string {
  return `${by === 'view' ? 'view' : kind}.${extension}`;
}

/** `snapshot` of `snapshot.pickle` or `snapshot.memory.safetensors`. */
export function stemOfFile(file: string): string {
  return file.replace(/\.((graph|diff|memory|compile|compare)\.safetensors|pickle|pkl)$/, '');
}

/** The line of Python that writes a record's file in another format, from the same folder. */
export function pythonLine(file: string, kind: CaptureKind, format: IFormat): string {
  const stem = stemOfFile(file);
  const target = JSON.stringify(`${stem}.${ending(format, kind)}`);
  return kind === 'memory'
    ? `wb.memory(${JSON.stringify(file)}).figure().savefig(${target})`
    : `wb.graph(${JSON.stringify(file)}).save(${target})`;
}
