import type { TranslationBundle } from '@jupyterlab/translation';
import type { IConnection } from '../tokens';

/** Why the kernel cannot be queried for other captures. */
export interface IGone {
  /** Two words, beside what is greyed. */
  note: string;
  /** What happened, and what still works. */
  sentence: string;
}

/**
 * Why a tab's capture stands alone; null while its kernel can be queried.
 *
 * @param notebook path of the notebook whose kernel made the capture
 * @param experiment id of the experiment that it is of
 */
export function whyGone(
  connection: IConnection | null,
  notebook: string,
  experiment: string,
  trans: TranslationBundle,
): IGone | null {
  switch (connection?.status) {
    case undefined:
      return {
        note: trans.__('notebook closed'),
        sentence: trans.__('Open %1 to show or compare other captures of its kernel.', notebook),
      };
    case 'lost':
      return {
        note: trans.__('reconnecting'),
        sentence: trans.__('The connection to the kernel of %1 was interrupted.', notebook),
      };
    case 'open':
      return isUnknown(connection, experiment)
        ? {
            note: trans.__('experiment gone'),
            sentence: trans.__(
              'This experiment is no longer in the kernel of %1. What is shown can still be saved with Export.',
              notebook,
            ),
          }
        : null;
    default:
      return {
        note: trans.__('kernel gone'),
        sentence: trans.__(
          'The kernel of %1 was restarted or shut down, so its captures are lost. What is shown can still be saved with Export.',
          notebook,
        ),
      };
  }
}

/** Others are there and this one is not: a kernel that has reported none may be about to. */
function isUnknown({ store }: IConnection, experiment: string): boolean {
  const experiments = store?.get().experiments;
  return experiments !== undefined && experiments.size > 0 && !experiments.has(experiment);
}
