import { PathExt } from '@jupyterlab/coreutils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { refreshIcon, SidePanel, type ToolbarButton } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { Message } from '@lumino/messaging';
import { type AccordionPanel, Widget } from '@lumino/widgets';
import {
  bytes,
  type CommandArgs,
  count,
  type KernelFacts,
  mountCaptures,
  mountExperiments,
  mountModes,
  mountRuns,
  type RunTarget,
} from '@torch-workbench/views';
import { follow } from '../connection/follow';
import type { PacedStore } from '../connection/paced';
import { NOTEBOOK_ATTRIBUTE } from '../documents/request';
import { captureIcon, tensorboardIcon, workbenchIcon } from '../icons';
import { report } from '../report';
import { CommandIDs, type IConnection, type IWorkbenchConnections } from '../tokens';
import { insertExperiment } from './insert';
import type { RunsStore } from './runs';
import { Section } from './section';
import { NaturalSizes } from './sizes';

type TakeOver = {
  [N in 'resume_from' | 'load_weights']: { readonly name: N; readonly args: CommandArgs[N] };
}['resume_from' | 'load_weights'];

/** The side panel: the active notebook's experiments, their modes and captures, runs on disk. */
export class WorkbenchSidebar extends SidePanel {
  constructor(
    private readonly connections: IWorkbenchConnections,
    private readonly runsStore: RunsStore,
    private readonly commands: CommandRegistry,
    private readonly trans: TranslationBundle,
  ) {
    super();
    this.id = 'workbench-side-panel';
    this.addClass('jp-Workbench-sidebar');
    // Every mode with its values on one line; JupyterLab's own rule for side panels is 250 px.
    this.node.style.minWidth = '320px';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('Workbench'));
    this.title.icon = workbenchIcon;
    this.title.caption = trans.__('Workbench: experiments, modes, captures and runs');
    this.header.addWidget(this.heading());

    this.experiments = new Section(trans.__('Experiments'), trans);
    this.modes = new Section(trans.__('Modes'), trans);
    this.captures = new Section(trans.__('Captures'), trans);
    this.runs = new Section(trans.__('Runs'), trans);
    this.capture = this.captures.addButton(
      'capture',
      captureIcon,
      trans.__('Capture graph and memory of the next step'),
      () => this.captureNext(),
    );
    this.runs.addButton('tensorboard', tensorboardIcon, trans.__('Open all in TensorBoard'), () => {
      const { root, error, loading } = this.runsStore.get();
      if (error === null && !loading) {
        this.openTensorBoard(root); // else it is not known where they are
      }
    });
    this.runs.addButton('refresh', refreshIcon, trans.__('Read the runs again'), () => {
      void this.runsStore.refresh();
    });
    const sections = [this.experiments, this.modes, this.captures, this.runs];
    sections.forEach((section) => this.addWidget(section));
    this.sizes = new NaturalSizes(this.content as AccordionPanel, sections);

    runsStore.subscribe(() => this.showRuns());
    this.showRuns();
    follow(connections, () => this.redraw());
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.sizes.schedule();
    void this.runsStore.refresh();
  }

  protected override onResize(msg: Widget.ResizeMessage): void {
    super.onResize(msg);
    this.sizes.schedule();
  }

  private heading(): Widget {
    const header = new Widget();
    header.addClass('jp-Workbench-heading');
    const title = document.createElement('h2');
    title.textContent = this.trans.__('Workbench');
    header.node.append(title, this.machine);
    return header;
  }

  /** Called whenever anything of the active notebook changed: cheap when it is the same notebook. */
  private redraw(): void {
    const connection = this.connections.current;
    this.node.setAttribute(NOTEBOOK_ATTRIBUTE, connection?.path ?? '');
    this.runsStore.follow(connection);
    const target = JSON.stringify(this.target(), (key, value: unknown) =>
      key === 'step' ? value !== 0 : value,
    );
    if (target !== this.lastTarget) {
      this.lastTarget = target;
      this.runsStore.targetChanged();
    }
    const model = connection?.store?.get();
    const lost = connection?.status === 'lost';
    const machine = lost ? this.trans.__('reconnecting…') : this.describe(model?.kernel ?? null);
    if (this.machine.textContent !== machine) {
      this.machine.textContent = machine;
    }
    const store = connection?.store;
    const experiment = connection?.experiment;
    if (connection && store && experiment != null) {
      this.showLive(connection, store, experiment);
    } else {
      this.showEmpty(connection);
    }
  }

  private showLive(connection: IConnection, store: PacedStore, experiment: string): void {
    const { trans } = this;
    const all = store.get().experiments;
    const name = all.get(experiment)?.state.name ?? '';
    this.experiments.note = trans.__('%1 in this kernel', count(all.size));
    this.modes.note = this.captures.note = trans.__('of %1', name);
    this.capture.enabled = true;
    this.experiments.display(store, (node) =>
      mountExperiments(node, store, {
        current: () => connection.experiment,
        onSelect: (id) => connection.select(id),
        onFailure: (reason) => report(new Error(reason)),
      }),
    );
    const key = `${this.keyOf(store)}/${experiment}`;
    this.modes.display(key, (node) => mountModes(node, store, { experiment }));
    this.captures.display(key, (node) => mountCaptures(node, store, { experiment }));
  }

  private showEmpty(connection: IConnection | null): void {
    const { trans } = this;
    this.experiments.note = this.modes.note = this.captures.note = '';
    this.capture.enabled = false;
    if (connection === null) {
      this.experiments.showMessage('status', trans.__('Open a notebook to see its experiments.'), {
        label: trans.__('New classifier notebook'),
        run: () => void this.commands.execute(CommandIDs.createClassifier).catch(report),
      });
    } else if (connection.status === 'none') {
      this.experiments.showMessage('status', trans.__('This notebook has no kernel.'), {
        label: trans.__('Choose a kernel'),
        run: () => void this.commands.execute('notebook:change-kernel').catch(report),
      });
    } else if (connection.status === 'waiting') {
      const { detail } = connection;
      if (detail === '') {
        this.experiments.showMessage(
          'busy',
          trans.__('Requesting the experiments of this kernel…'),
        );
      } else {
        this.experiments.showMessage(
          'error',
          trans.__('No answer of this kernel yet: %1.', detail),
        );
      }
    } else {
      this.experiments.showMessage(
        'status',
        trans.__('There is no experiment in this kernel yet.'),
        {
          label: trans.__('Insert a cell that makes one'),
          run: () => insertExperiment(connection.panel),
        },
      );
    }
    this.modes.showMessage('status', trans.__('The modes of an experiment appear here.'));
    this.captures.showMessage('status', trans.__('Graphs and memory timelines appear here.'));
  }

  private showRuns(): void {
    const { runs, deleted, root, error, loading } = this.runsStore.get();
    const { trans } = this;
    const folder = PathExt.basename(root) || trans.__('the folder that Jupyter serves');
    this.runs.note = runs.length > 0 ? trans.__('%1 in %2/', count(runs.length), folder) : '';
    if (error !== null) {
      this.runs.showMessage('error', error, {
        label: trans.__('Try again'),
        run: () => void this.runsStore.refresh(),
      });
    } else if (runs.length === 0 && deleted.length === 0) {
      const sentence = loading
        ? trans.__('Reading the runs…')
        : trans.__('There are no runs in %1/ yet.', folder);
      this.runs.showMessage(loading ? 'busy' : 'status', sentence);
    } else {
      this.runs.display(root, (node) =>
        mountRuns(node, this.runsStore, {
          into: () => this.target(),
          onResume: (run) =>
            this.take({ name: 'resume_from', args: { path: this.runsStore.kernelPath(run) } }),
          onLoadBest: (run) =>
            this.take({
              name: 'load_weights',
              args: { path: this.runsStore.kernelPath(run), which: 'best' },
            }),
          onOpen: (run) => this.openTensorBoard(run.path),
          onDelete: (run) => this.runsStore.delete(run),
          onRestore: (run) => this.runsStore.restore(run),
        }),
      );
    }
  }

  /** The selected experiment, into which a run can be taken. */
  private target(): RunTarget | null {
    const connection = this.connections.current;
    const experiments = connection?.store?.get().experiments;
    const found = experiments?.get(connection?.experiment ?? '')?.state;
    return found ? { name: found.name, status: found.status, step: found.step } : null;
  }

  /** Has the selected experiment take over what a run has. */
  private async take(command: TakeOver): Promise<void> {
    const connection = this.connections.current;
    const experiment = connection?.experiment;
    if (!connection?.store || experiment == null) {
      throw new Error(this.trans.__('There is no experiment in this kernel yet.'));
    }
    await connection.store.send({ ...command, experiment });
    await this.runsStore.refresh();
  }

  private captureNext(): void {
    const connection = this.connections.current;
    const experiment = connection?.experiment;
    if (connection?.store && experiment != null) {
      connection.store.send({ name: 'capture', experiment, args: { what: 'both' } }).catch(report);
    }
  }

  private openTensorBoard(logdir: string): void {
    void this.commands.execute(CommandIDs.openTensorBoard, { logdir }).catch(report);
  }

  private describe(kernel: KernelFacts | null): string {
    return kernel === null
      ? ''
      : this.trans.__('%1, %2 cores, %3', kernel.device, kernel.cores, bytes(kernel.memory_bytes));
  }

  /** A store has no name; a section must still distinguish them. */
  private keyOf(store: PacedStore): number {
    const known = this.keys.get(store) ?? ++this.lastKey;
    this.keys.set(store, known);
    return known;
  }

  private readonly keys = new WeakMap<PacedStore, number>();
  private lastKey = 0;
  private lastTarget = 'null';
  private readonly machine = document.createElement('span');
  private readonly experiments: Section;
  private readonly modes: Section;
  private readonly captures: Section;
  private readonly runs: Section;
  private readonly capture: ToolbarButton;
  private readonly sizes: NaturalSizes;
}
