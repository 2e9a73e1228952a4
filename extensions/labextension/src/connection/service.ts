import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';
import type { IConnection, IWorkbenchConnections, IWorkbenchSettings } from '../tokens';
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
    tracker.currentChanged.connect(() => this.currentChanged.emit(this.current));
  }

  get current(): IConnection | null {
    const panel = this.tracker.currentWidget;
    return panel === null ? null : (this.connections.get(panel) ?? null);
  }

  all(): readonly IConnection[] {
    return [...this.connections.values()];
  }

  forPath(path: string): IConnection | null {
    return this.all().find((one) => one.path === path) ?? null;
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
    if (this.tracker.currentWidget === panel) {
      // The tracker may have named it before it was known here.
      this.currentChanged.emit(connection);
    }
  }

  private remove(panel: NotebookPanel): void {
    this.connections.get(panel)?.dispose();
    this.connections.delete(panel);
    this.changed.emit();
    this.currentChanged.emit(this.current);
  }

  private readonly connections = new Map<NotebookPanel, Connection>();
}
