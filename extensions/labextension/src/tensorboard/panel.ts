import type { IThemeManager } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { IFrame } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import { Panel } from '@lumino/widgets';
import { messageOf, oneLine } from '@torch-workbench/views';
import type { IDashboard, WorkbenchServer } from '../server';
import { Notice } from '../notice';
import { tensorboardIcon } from '../icons';
import { frameUrl, themed } from './address';

/** What a TensorBoard tab is doing. */
export type DashboardState = 'starting' | 'running' | 'failed' | 'stopped';

/** How often a visible tab asks whether its dashboard still runs. */
const CHECK_MS = 30_000;

/** TensorBoard of one log directory: asks the server for it, shows it, says why when it cannot. */
export class TensorBoardPanel extends Panel {
  /** The state changed, or the tab came into or went out of sight. */
  readonly stateChanged = new Signal<TensorBoardPanel, DashboardState>(this);

  constructor(
    readonly logdir: string,
    private readonly server: WorkbenchServer,
    private readonly themes: IThemeManager | null,
    private readonly trans: TranslationBundle,
  ) {
    super();
    this.addClass('jp-Workbench-tensorboard');
    this.title.label = trans.__(
      'TensorBoard: %1',
      oneLine(PathExt.basename(logdir), 40) || trans.__('all runs'),
    );
    this.title.caption = trans.__('TensorBoard of %1', logdir || '/');
    this.title.icon = tensorboardIcon;
    this.notice = new Notice();
    this.frame = new IFrame({
      // Over plain http the referrer is how the server knows its own pages.
      referrerPolicy: 'same-origin',
      sandbox: [
        'allow-scripts',
        'allow-same-origin',
        'allow-forms',
        'allow-downloads',
        'allow-popups',
        'allow-modals',
      ],
    });
    this.iframe.title = this.title.caption;
    this.iframe.addEventListener('load', () => this.onLoaded());
    this.addWidget(this.frame);
    this.addWidget(this.notice);
    themes?.themeChanged.connect(this.onThemeChanged, this);
    void this.start();
  }

  get state(): DashboardState {
    return this._state;
  }

  /** The dashboard's id at the server, null while there is none. */
  get dashboard(): string | null {
    return this.running?.id ?? null;
  }

  /** Where the dashboard can be opened in a browser tab of its own. */
  get address(): string | null {
    return this.running === null ? null : themed(frameUrl(this.running.url), this.isDark);
  }

  override dispose(): void {
    window.clearInterval(this.timer);
    this.themes?.themeChanged.disconnect(this.onThemeChanged, this);
    super.dispose();
  }

  /** Starts the dashboard, or finds the one that runs, and shows it. */
  async start(): Promise<void> {
    this.enter('starting');
    try {
      const dashboard = await this.server.startTensorBoard(this.logdir);
      if (!this.isDisposed) {
        this.running = dashboard;
        this.frame.url = themed(frameUrl(dashboard.url), this.isDark);
      }
    } catch (error) {
      if (!this.isDisposed) {
        this.fail(error);
      }
    }
  }

  /** Draws the page anew, where it was. */
  reload(): void {
    if (this._state === 'running') {
      this.iframe.contentWindow?.location.reload();
    } else {
      void this.start();
    }
  }

  /** Ends the TensorBoard process at the server. */
  async stop(): Promise<void> {
    const running = this.running;
    if (running === null) {
      return;
    }
    try {
      await this.server.stopTensorBoard(running.id);
      this.showStopped(
        this.trans.__('TensorBoard was stopped. Its event files stay where they are.'),
      );
    } catch (error) {
      this.fail(error);
    }
  }

  /** The dashboard was ended because the tab was out of sight for long. */
  stoppedWhileHidden(): void {
    this.showStopped(this.trans.__('TensorBoard was stopped because nobody looked at it.'));
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.stateChanged.emit(this._state);
    void this.check();
  }

  protected override onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this.stateChanged.emit(this._state);
  }

  private onLoaded(): void {
    if (this._state === 'starting' && this.running !== null && this.iframe.src !== '') {
      this.enter('running');
      window.clearInterval(this.timer);
      this.timer = window.setInterval(() => void this.check(), CHECK_MS);
    }
  }

  /** Says so when the server has stopped the dashboard, instead of leaving a dead page. */
  private async check(): Promise<void> {
    const running = this.running;
    if (this._state !== 'running' || running === null || !this.isVisible) {
      return;
    }
    try {
      const all = await this.server.dashboards();
      if (this.running === running && !all.some((one) => one.id === running.id)) {
        this.showStopped(this.trans.__('TensorBoard was stopped because nobody used it.'));
      }
    } catch {
      // An unreachable server says so by itself; the page may still be read.
    }
  }

  private onThemeChanged(): void {
    const page = this.iframe.contentWindow;
    if (this._state === 'running' && page !== null) {
      page.location.replace(themed(page.location.href, this.isDark));
    }
  }

  private fail(error: unknown): void {
    this.clear();
    this.enter('failed');
    this.notice.tell('error', messageOf(error), {
      label: this.trans.__('Try again'),
      run: () => void this.start(),
    });
  }

  private showStopped(sentence: string): void {
    this.clear();
    this.enter('stopped');
    this.notice.tell('status', sentence, {
      label: this.trans.__('Start TensorBoard'),
      run: () => void this.start(),
    });
  }

  private clear(): void {
    window.clearInterval(this.timer);
    this.running = null;
    this.iframe.removeAttribute('src');
  }

  private enter(state: DashboardState): void {
    this._state = state;
    this.frame.setHidden(state !== 'running' && state !== 'starting');
    this.frame.toggleClass('jp-mod-loading', state === 'starting');
    this.notice.setHidden(state === 'running');
    if (state === 'starting') {
      this.notice.tell('busy', this.trans.__('Starting TensorBoard of %1…', this.logdir || '/'));
    }
    this.stateChanged.emit(state);
  }

  private get iframe(): HTMLIFrameElement {
    return this.frame.node.querySelector('iframe') as HTMLIFrameElement;
  }

  private get isDark(): boolean {
    const theme = this.themes?.theme;
    return theme != null && !(this.themes?.isLight(theme) ?? true);
  }

  private readonly frame: IFrame;
  private readonly notice: Notice;
  private running: IDashboard | null = null;
  private timer = 0;
  private _state: DashboardState = 'starting';
}
