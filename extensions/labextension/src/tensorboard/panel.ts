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
import { frameUrl, pinned, themed } from './address';

/** What a TensorBoard tab is doing. */
export type DashboardState = 'starting' | 'running' | 'failed' | 'stopped';

/** How often a visible tab checks whether its dashboard still runs. */
const CHECK_MS = 30_000;

/**
 * TensorBoard of one log directory: requests it from the server, shows it, says why when it cannot.
 */
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
    return this.running === null ? null : this.addressOf(this.running);
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
        this.frame.url = this.addressOf(dashboard);
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
    this.showStopped(this.trans.__('TensorBoard was stopped because its tab was hidden.'));
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
      const problem = this.problem();
      if (problem !== '') {
        this.fail(new Error(problem));
        return;
      }
      this.enter('running');
      window.clearInterval(this.timer);
      this.timer = window.setInterval(() => void this.check(), CHECK_MS);
    }
  }

  /** What was loaded where it is not TensorBoard, in one sentence; else an empty text. */
  private problem(): string {
    const page = this.iframe.contentDocument;
    if (page === null) {
      // an error page of the browser's, which no script may look into
      return this.trans.__(
        'The browser refused to show TensorBoard inside this page: something between Jupyter and the browser, often a proxy, sends an X-Frame-Options or Content-Security-Policy header that forbids it.',
      );
    }
    if (page.querySelector('tb-webapp') !== null || page.title === 'TensorBoard') {
      return '';
    }
    const said = oneLine(page.querySelector('pre')?.textContent ?? '', 400);
    return page.title === 'Workbench' && said !== ''
      ? said
      : this.trans.__(
          'Another page was loaded instead of TensorBoard (“%1”): if Jupyter requires a login, reload this page; otherwise a proxy may have sent it.',
          oneLine(page.title, 80),
        );
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
        this.showStopped(this.trans.__('TensorBoard was stopped because it was not in use.'));
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
    this.notice.showMessage('error', messageOf(error), {
      label: this.trans.__('Try again'),
      run: () => void this.start(),
    });
  }

  private showStopped(sentence: string): void {
    this.clear();
    this.enter('stopped');
    this.notice.showMessage('status', sentence, {
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
      this.notice.showMessage(
        'busy',
        this.trans.__('Starting TensorBoard of %1…', this.logdir || '/'),
      );
    }
    this.stateChanged.emit(state);
  }

  private addressOf({ url }: IDashboard): string {
    return themed(pinned(frameUrl(url)), this.isDark);
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
