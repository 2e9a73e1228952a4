import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import type { Message } from '@lumino/messaging';
import { Panel, Widget } from '@lumino/widgets';
import { mountPanel } from '@torch-workbench/views';
import type { IConnection, IWorkbenchConnections } from '../tokens';
import { NotebookStore } from './store';

/** What an experiment's output says to this extension; `workbench/panel/view.py` writes it. */
export const PANEL_MIME = 'application/vnd.torch-workbench.panel+json';

/**
 * The panel of an experiment in a cell's output, over the notebook's own connection.
 *
 * Where this extension runs it takes the place of the widget, which JupyterLab gives up on when a
 * kernel is too busy to hand its widgets back within four seconds of a reload. Until the experiment
 * is heard of, and for good where its kernel is gone, the output's static picture is shown.
 */
export class PanelOutput extends Panel implements IRenderMime.IRenderer {
  constructor(
    private readonly connections: IWorkbenchConnections,
    private readonly picture: () => IRenderMime.IRenderer,
  ) {
    super();
    this.addClass('jp-Workbench-output');
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.clear();
    this.wanted = readPanel(model.data[PANEL_MIME]);
    const picture = this.picture();
    this.addWidget(picture);
    await picture.renderModel(model);
    this.connect();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this.clear();
      super.dispose();
    }
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.connect();
  }

  /** Finds the notebook of this output; it may not be on the page, or not be known, yet. */
  private connect(): void {
    if (this.wanted === null || this.store !== null || this.isDisposed) {
      return;
    }
    const connection = this.connectionOf(this.wanted);
    this.connections.changed.disconnect(this.connect, this);
    if (connection === null) {
      this.connections.changed.connect(this.connect, this);
    } else {
      this.follow(connection, this.wanted);
    }
  }

  /** The notebook around this output, or for a view of it in a tab of its own the one it is of. */
  private connectionOf({ experiment }: Wanted): IConnection | null {
    const around = this.connections.forNode(this.node);
    if (around !== null || !this.isAttached) {
      return around;
    }
    const knows = ({ store }: IConnection): boolean =>
      store?.get().experiments.has(experiment) ?? false;
    return this.connections.all().find(knows) ?? null;
  }

  private follow(connection: IConnection, wanted: Wanted): void {
    const store = new NotebookStore(connection);
    this.store = store;
    const stop = store.subscribe(() => show());
    const show = (): void => {
      if (this.unmount === null && store.get().experiments.has(wanted.experiment)) {
        stop();
        this.mount(store, wanted);
      }
    };
    show();
  }

  private mount(store: NotebookStore, wanted: Wanted): void {
    const picture = this.widgets[0];
    const host = new Widget();
    this.addWidget(host);
    this.unmount = mountPanel(host.node, store, wanted);
    picture?.dispose();
  }

  private clear(): void {
    this.connections.changed.disconnect(this.connect, this);
    this.unmount?.();
    this.store?.dispose();
    this.unmount = this.store = this.wanted = null;
    for (const widget of [...this.widgets]) {
      widget.dispose();
    }
  }

  private wanted: Wanted | null = null;
  private store: NotebookStore | null = null;
  private unmount: (() => void) | null = null;
}

interface Wanted {
  readonly experiment: string;
  readonly name: string;
}

/** The output of a notebook may hold anything. */
function readPanel(data: unknown): Wanted | null {
  const { experiment, name } = Object(data) as Partial<Record<keyof Wanted, unknown>>;
  return typeof experiment === 'string' ? { experiment, name: String(name ?? '') } : null;
}
