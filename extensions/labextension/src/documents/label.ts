import type { TranslationBundle } from '@jupyterlab/translation';
import type { CaptureInfo, CaptureKind } from '@torch-workbench/records';
import { oneLine } from '@torch-workbench/views';

/** JupyterLab's status bar shows a label in full. */
const LONGEST_NAME = 40;

/** What a tab is called. What tells tabs apart comes first: a narrow tab cuts the end. */
export function labelOf(
  kind: CaptureKind,
  experiment: string,
  info: CaptureInfo | undefined,
  trans: TranslationBundle,
): string {
  const name = oneLine(experiment, LONGEST_NAME);
  if (kind === 'diff') {
    return info === undefined
      ? trans.__('Graphs of %1', name)
      : trans.__('Steps %1 → %2 · graphs of %3', info.against_step ?? 0, info.step, name);
  }
  if (info === undefined) {
    return kind === 'graph' ? trans.__('Graph of %1', name) : trans.__('Memory of %1', name);
  }
  return kind === 'graph'
    ? trans.__('Step %1 · graph of %2', info.step, name)
    : trans.__('Step %1 · memory of %2', info.step, name);
}
