import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { report } from '../report';
import { CommandIDs } from '../tokens';
import type { CaptureView } from './capture';
import { capturesOf } from './choose';
import type { MemoryHost } from './mount';

/**
 * What the memory view of a live kernel may query: that kernel, as long as it is there, and its
 * graphs.
 */
export function hostOf(
  view: CaptureView,
  capture: string,
  commands: CommandRegistry,
  trans: TranslationBundle,
): MemoryHost {
  const { notebook, experiment } = view.address;
  const gone = (): Error =>
    new Error(view.gone?.sentence ?? trans.__('There is no connection to the kernel.'));
  return {
    ask: (question) =>
      view.store === null ? Promise.reject(gone()) : view.store.ask(experiment, capture, question),
    openModule: (module) => {
      if (view.store === null) {
        return report(gone());
      }
      if (capturesOf(view.store, experiment, 'graph').length === 0) {
        const command = trans.__('Capture Graph of the Next Step');
        return report(
          new Error(trans.__('No graph of this experiment is held: run “%1”.', command)),
        );
      }
      void commands.execute(CommandIDs.openGraph, { notebook, experiment, module });
    },
  };
}
