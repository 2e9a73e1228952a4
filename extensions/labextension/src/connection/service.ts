import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';
import { EXPERIMENT_ATTRIBUTE, NOTEBOOK_ATTRIBUTE } from '../documents/request';
import type { IConnection, IHolder, IWorkbenchConnections, IWorkbenchSettings } from '../tokens';
import { Connection } from './connection';

/** A connection for every open notebook. */
export class WorkbenchConnections implements IWorkbenchConnections {
  readonly currentChanged: Signal<IWorkbenchConnections, IConnection | null> = new Signal(this);
  readonly changed: Signal<IWorkbenchConnections, void> = new Signal(this);

  constructor(
    private readonly tracker: INotebookTracker,
    private readonly settings: IWorkbenchSettings,
  ) {
    tracker.forEach((panel) => this.add(panel));
    tracker.widgetAdded.connect((_, panel) => this.add(panel));
    // A notebook that was just opened is in front before it is known here.
    tracker.currentChanged.connect(() => {
      this.looked = null;
      this.notifyCurrent();
    });
  }

  get current(): IConnection | null {
    const panel = this.looked ?? this.tracker.currentWidget;
    return panel === null ? null : (this.connections.get(panel) ?? null);
  }

  /**
   * Another tab came to the front. A capture's makes the kernel it came from the current one, and
   * its experiment the selected one: two notebooks may train at once, and what a person looks at
   * is what the commands and the side panel are about.
   */
  lookAt(tab: Widget | null): void {
    if (tab !== null && this.connections.has(tab as NotebookPanel)) {
      this.looked = null;
    } else {
      this.lookAtCapture(tab?.node.querySelector(`[${EXPERIMENT_ATTRIBUTE}]`) ?? null);
    }
    this.notifyCurrent();
  }

  all(): readonly IConnection[] {
    return [...this.connections.values()];
  }

  forPath(path: string): IConnection | null {
    return this.all().find((one) => one.path === path) ?? null;
  }

  forHolder({ notebook, kernel }: IHolder): IConnection | null {
    const known = this.all().filter((one) => kernel !== undefined && one.kernelId === kernel);
    return known.find(({ path }) => path === notebook) ?? known[0] ?? this.forPath(notebook);
  }

  forNode(node: Node): IConnection | null {
    return this.all().find((one) => one.panel.node.contains(node)) ?? null;
  }

  private add(panel: NotebookPanel): void {
    if (this.connections.has(panel)) {
      return;
    }
    const connection = new Connection(panel, this.settings);
    this.connections.set(panel, connection);
    connection.changed.connect(() => this.changed.emit());
    panel.disposed.connect(() => this.remove(panel));
    this.changed.emit();
    // The tracker may have named it before it was known here.
    this.notifyCurrent();
  }

  private remove(panel: NotebookPanel): void {
    this.connections.get(panel)?.dispose();
    this.connections.delete(panel);
    this.looked = this.looked === panel ? null : this.looked;
    this.changed.emit();
    this.notifyCurrent();
  }

  private lookAtCapture(view: Element | null): void {
    const connection = this.forPath(view?.getAttribute(NOTEBOOK_ATTRIBUTE) ?? '');
    const experiment = view?.getAttribute(EXPERIMENT_ATTRIBUTE) ?? '';
    if (connection !== null) {
      this.looked = connection.panel;
      if (connection.store?.get().experiments.has(experiment) === true) {
        connection.select(experiment);
      }
    }
  }

  private notifyCurrent(): void {
    const { current } = this;
    if (current !== this.notified) {
      this.notified = current;
      this.currentChanged.emit(current);
    }
  }

  /** The notebook whose capture was looked at last, after any notebook was. */
  private looked: NotebookPanel | null = null;
  /** The connection that listeners were last notified of. */
  private notified: IConnection | null = null;

  private readonly connections = new Map<NotebookPanel, Connection>();
}
