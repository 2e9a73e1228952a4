import type { TranslationBundle } from '@jupyterlab/translation';
import type { CaptureInfo, CaptureKind } from '@torch-workbench/records';
import { count, oneLine } from '@torch-workbench/views';

/** What a person knows a capture by; plain data, kept with its tab. */
export interface ICaptureName {
  /** The experiment's name. */
  name: string;
  /** `step 43`, `42 → 43` of a comparison; empty until the kernel reports it. */
  label: string;
}

/** A tab of JupyterLab's has room for some twenty letters: a name gives way to the step. */
const LONGEST_IN_TAB = 14;
/** A menu and the status bar show a name in full. */
const LONGEST_NAME = 60;

/** Names a capture by its experiment and its step. */
export function nameOf(
  experiment: string,
  info: CaptureInfo | undefined,
  trans: TranslationBundle,
): ICaptureName {
  const name = oneLine(experiment, LONGEST_NAME);
  if (info === undefined) {
    return { name, label: '' };
  }
  const label =
    info.kind === 'diff'
      ? `${count(info.against_step ?? 0)} → ${count(info.step)}`
      : trans.__('step %1', count(info.step));
  return { name, label };
}

/**
 * `early-exit · step 43 · graph`: what distinguishes tabs comes first, a narrow tab cuts the end.
 */
export function titleOf(
  kind: CaptureKind,
  { name, label }: ICaptureName,
  trans: TranslationBundle,
): string {
  return joined([withoutMiddle(name, LONGEST_IN_TAB), label, wordFor(kind, trans)]);
}

/** The same in full. */
export function captionOf(
  kind: CaptureKind,
  { name, label }: ICaptureName,
  trans: TranslationBundle,
): string {
  return joined([name, label, wordFor(kind, trans)]);
}

/** `early-exit · step 43`: what a file made of it is called; its ending says the kind. */
export function stemOf({ name, label }: ICaptureName): string {
  return joined([name, label]);
}

function wordFor(kind: CaptureKind, trans: TranslationBundle): string {
  switch (kind) {
    case 'graph':
      return trans.__('graph');
    case 'memory':
      return trans.__('memory');
    case 'diff':
      return trans.__('diff');
  }
}

function joined(parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join(' · ');
}

/** Names of one series differ at their end as often as at their beginning. */
function withoutMiddle(name: string, most: number): string {
  const letters = [...name];
  if (letters.length <= most) {
    return name;
  }
  const end = Math.floor((most - 1) / 2);
  return `${letters.slice(0, most - 1 - end).join('')}…${letters.slice(-end).join('')}`;
}
