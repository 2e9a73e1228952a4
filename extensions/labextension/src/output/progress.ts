import type { NotebookPanel } from '@jupyterlab/notebook';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import { duration, h } from '@torch-workbench/views';
import type { IWorkbenchConnections } from '../tokens';

/** How far a comparison is; `workbench/compare/progress.py` writes it. */
export const PROGRESS_MIME = 'application/vnd.torch-workbench.progress+json';

/**
 * How far a comparison is, with a button that ends it.
 *
 * The kernel is busy with the very cell, so it cannot hear a message: the button interrupts it, as
 * the notebook's own Interrupt does, and the comparison keeps what it has measured.
 */
export class ProgressOutput extends Widget implements IRenderMime.IRenderer {
  constructor(
    private readonly connections: Pick<IWorkbenchConnections, 'forNode'>,
    private readonly trans: TranslationBundle,
  ) {
    super();
    this.addClass('jp-Workbench-measuring');
    this.bar.setAttribute('aria-label', trans.__('comparison'));
    this.button.append(trans.__('Stop and keep what was measured'));
    this.button.addEventListener('click', () => void this.stop());
    const line = h('div', {}, this.bar, this.text);
    this.node.append(line, h('div', {}, this.button, this.said));
  }

  /** Draws in place: what stands there ten times a second must not lose the focus. */
  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const { what, share, elapsed } = readProgress(model.data[PROGRESS_MIME]);
    this.bar.value = share;
    const parts = [`${Math.floor(100 * share)} %`, what, duration(elapsed)];
    this.text.textContent = parts.filter((part) => part !== '').join('  ·  ');
    return Promise.resolve();
  }

  private async stop(): Promise<void> {
    const { trans } = this;
    const panel = this.connections.forNode(this.node)?.panel;
    const kernel = panel?.sessionContext.session?.kernel ?? null;
    if (panel === undefined || kernel === null || !this.isMeasured(panel, kernel.status)) {
      this.said.textContent = trans.__('The measurement is no longer running.');
      return;
    }
    // A second interrupt would meet the cleaning up after the first.
    this.button.disabled = true;
    this.said.textContent = trans.__('Stopping: waiting for the processes to end…');
    try {
      await kernel.interrupt();
    } catch (error) {
      this.button.disabled = false;
      const reason = error instanceof Error ? error.message : String(error);
      this.said.textContent = trans.__('The kernel could not be interrupted: %1', reason);
    }
  }

  /**
   * Whether the cell runs, or another client's may. The kernel's status alone does not show it: one that
   * answers the panel beside a cell calls itself idle once it has answered.
   */
  private isMeasured(panel: NotebookPanel, status: string): boolean {
    const cell = panel.content.widgets.find((one) => one.node.contains(this.node));
    const model: object = cell?.model ?? {};
    const runs = 'executionState' in model && model.executionState === 'running';
    return runs || status !== 'idle';
  }

  private readonly bar = h('progress', { max: 1 });
  private readonly text = h('span', { role: 'status' });
  private readonly button = h('button', { type: 'button', class: 'jp-Workbench-button' });
  private readonly said = h('span', { role: 'status' });
}

/** The output of a notebook may hold anything. */
function readProgress(data: unknown): { what: string; share: number; elapsed: number } {
  const { what, share, elapsed } = Object(data) as Record<string, unknown>;
  return {
    what: typeof what === 'string' ? what : '',
    share: Math.min(Math.max(Number(share) || 0, 0), 1),
    elapsed: Math.max(Number(elapsed) || 0, 0),
  };
}
