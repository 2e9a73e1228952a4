import { type IThemeManager, MainAreaWidget, type WidgetTracker } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import {
  launchIcon,
  refreshIcon,
  stopIcon,
  Toolbar,
  ToolbarButton,
} from '@jupyterlab/ui-components';
import { UUID } from '@lumino/coreutils';
import { Widget } from '@lumino/widgets';
import type { WorkbenchServer } from '../server';
import type { IWorkbenchSettings } from '../tokens';
import { IdleStopper } from './idle';
import { TensorBoardPanel } from './panel';

export type DashboardTab = MainAreaWidget<TensorBoardPanel>;

/** The TensorBoard tabs: one for each log directory. */
export class DashboardTabs {
  constructor(
    private readonly server: WorkbenchServer,
    settings: IWorkbenchSettings,
    private readonly themes: IThemeManager | null,
    private readonly tracker: WidgetTracker<DashboardTab>,
    private readonly trans: TranslationBundle,
  ) {
    this.idle = new IdleStopper(server, settings, (id) => {
      tracker.forEach((tab) => {
        if (tab.content.dashboard === id) {
          tab.content.stoppedWhileHidden();
        }
      });
    });
  }

  /** The one name of a log directory: a kernel names it from the file system's root. */
  async nameOf(folder: string): Promise<string> {
    try {
      return (await this.server.contentsPath(folder)) ?? folder;
    } catch {
      return folder; // what is wrong is said where TensorBoard is started
    }
  }

  /** The tab of a log directory, by its one name; a new one is not in the shell yet. */
  open(logdir: string): DashboardTab {
    const there = this.tracker.find((tab) => tab.content.logdir === logdir);
    return there ?? this.create(logdir);
  }

  private create(logdir: string): DashboardTab {
    const content = new TensorBoardPanel(logdir, this.server, this.themes, this.trans);
    const tab = new MainAreaWidget({ content });
    tab.id = `workbench-tensorboard-${UUID.uuid4()}`;
    this.fill(tab);
    let last: string | null = null;
    content.stateChanged.connect(() => {
      last = content.dashboard ?? last;
      this.watch(content);
    });
    tab.disposed.connect(() => {
      if (last !== null) {
        this.idle.unseen(last);
      }
    });
    return tab;
  }

  private fill(tab: DashboardTab): void {
    const { content, toolbar } = tab;
    const place = new Widget();
    place.addClass('jp-Workbench-place');
    place.node.textContent = content.logdir || '/';
    place.node.title = content.title.caption;
    const reload = new ToolbarButton({
      icon: refreshIcon,
      tooltip: this.trans.__('Reload TensorBoard'),
      onClick: () => content.reload(),
    });
    const stop = new ToolbarButton({
      icon: stopIcon,
      tooltip: this.trans.__('Stop TensorBoard'),
      onClick: () => void content.stop(),
    });
    const launch = new ToolbarButton({
      icon: launchIcon,
      tooltip: this.trans.__('Open in a browser tab'),
      onClick: () => {
        if (content.address !== null) {
          window.open(content.address, '_blank', 'noopener');
        }
      },
    });
    toolbar.addItem('logdir', place);
    toolbar.addItem('spacer', Toolbar.createSpacerItem());
    toolbar.addItem('reload', reload);
    toolbar.addItem('launch', launch);
    toolbar.addItem('stop', stop);
    content.stateChanged.connect(() => {
      stop.enabled = launch.enabled = content.state === 'running';
      reload.enabled = content.state !== 'starting';
    });
  }

  private watch(content: TensorBoardPanel): void {
    const id = content.dashboard;
    if (id === null) {
      return;
    }
    if (content.isVisible) {
      this.idle.seen(id);
    } else {
      this.idle.unseen(id);
    }
  }

  private readonly idle: IdleStopper;
}
