import type { Dispose, Store } from '../store';
import { messageOf } from '../errors';
import type { ModeActions } from '../controls/segments';
import { Popover } from '../controls/popover';
import { drawOn, h, setAttr, setShown, uniqueId } from '../dom';
import { oneLine } from '../format';
import type { Command, ExperimentModel, KernelModel } from '../kernel';
import { look } from '../controls/chip';
import { carryRow } from './carry-row';
import { chartsRow } from './charts-row';
import type { OpenRequest, PanelContext, Row, RowState } from './context';
import { emptyRow } from './empty-row';
import { exceptionRow } from './exception-row';
import { foldedModes } from './folded-modes';
import { footRow } from './foot-row';
import { inlineArea, type InlineView } from './inline';
import { memoryRow } from './memory-row';
import { modesRow } from './modes-row';
import { nanRow } from './nan-row';
import { errorNotice } from './notice';
import { runRow } from './run-row';
import { scheduleRow } from './schedule-row';

export interface PanelOptions {
  /** The experiment's id. */
  readonly experiment: string;
  /** Its name, shown until the kernel has said anything. */
  readonly name?: string;
  /** Shows graph and memory below the panel where no tab is opened. */
  readonly inline?: InlineView;
}

type Body = 'empty' | 'charts' | 'exception' | 'memory' | 'nan';

/**
 * The control panel of one experiment. Built when the experiment is first heard of, then patched at
 * most once per frame. When the kernel is gone the last picture stays, and the status line says
 * what to do.
 */
export function mountPanel(
  el: HTMLElement,
  store: Store<KernelModel, Command>,
  options: PanelOptions,
): Dispose {
  const name = oneLine(options.name ?? 'experiment', 60);
  const wait = h('div', { class: 'wb-row wb-waiting', role: 'status' }, `Connecting to ${name}`);
  const frame = h('section', { class: 'wb wb-panel' }, wait);
  el.append(frame);
  let panel: Panel | null = null;
  let last: ExperimentModel | null = null;
  const draw = (): void => {
    const model = store.get();
    last = model.experiments.get(options.experiment) ?? last;
    if (!last) {
      wait.textContent = waiting(model, name);
      return;
    }
    if (!panel) {
      panel = new Panel(frame, store, options, last);
      wait.remove();
    }
    panel.update(last, model);
  };
  const end = drawOn(store, draw, { element: frame });
  return () => {
    end();
    panel?.dispose();
    frame.remove();
  };
}

const RESTARTED = 'kernel restarted: run the cell again';
/** What it reached stays in sight. */
const GONE = 'no longer in the kernel: it was closed, or no variable refers to it any more';

function waiting(model: KernelModel, name: string): string {
  if (model.connection === 'live') return `${name} is not in this kernel: run the cell again`;
  return model.detail || `Connecting to ${name}`;
}

/** Why the kernel cannot be queried, or an empty text. */
function lockedBy(model: KernelModel, experiment: string): string {
  if (model.connection === 'live') {
    if (model.experiments.has(experiment)) return '';
    return model.gone.has(experiment) ? GONE : RESTARTED;
  }
  return model.detail || 'connecting to the kernel';
}

class Panel implements PanelContext {
  readonly experiment: string;
  private readonly rows: Row[];
  private readonly bodies: Record<Body, Row>;
  private readonly folded: Row;
  private readonly modes: Row;
  private readonly popover: Popover;
  private readonly notice = errorNotice();
  private readonly inline;
  private unfolded = false;
  private status = '';

  constructor(
    private readonly frame: HTMLElement,
    private readonly store: Store<KernelModel, Command>,
    options: PanelOptions,
    { state }: ExperimentModel,
  ) {
    this.experiment = options.experiment;
    this.popover = new Popover(frame, 'below');
    this.inline = inlineArea(options.inline);
    const actions: ModeActions = {
      setMode: (mode, value) => this.run('set_mode', { mode, value }),
      checkAgain: () => this.run('probe_modes', {}),
    };
    this.modes = modesRow(actions, this.popover);
    this.folded = foldedModes(() => {
      this.unfolded = true;
      this.refresh();
      this.modes.el.querySelector<HTMLElement>('[role=radio][tabindex="0"]')?.focus();
    });
    this.bodies = {
      empty: emptyRow(),
      charts: chartsRow(this, state.loss_name),
      exception: exceptionRow(this),
      memory: memoryRow(this),
      nan: nanRow(this, state.loss_name),
    };
    const effectId = uniqueId('schedule');
    const run = [runRow(this, effectId), scheduleRow(this, effectId)];
    this.rows = [...run, this.folded, this.modes, ...Object.values(this.bodies)];
    this.rows.push(carryRow(), footRow(this, this.popover));
    frame.append(...this.rows.map((row) => row.el), this.notice.el, this.inline.el);
    // A message is an alert only when it appears, so it is not in the page before.
    for (const body of Object.values(this.bodies)) body.el.remove();
  }

  update(model: ExperimentModel, kernel: KernelModel): void {
    const locked = lockedBy(kernel, this.experiment);
    const state: RowState = { model, connection: kernel.connection, locked };
    const body = bodyOf(model);
    this.showBody(body);
    const message = body !== 'empty' && body !== 'charts';
    if (!message) this.unfolded = false;
    setShown(this.folded.el, message && !this.unfolded);
    setShown(this.modes.el, !message || this.unfolded);
    const { name, model: cls, status } = model.state;
    if (status === 'training' && this.status !== status) this.fail('');
    this.status = status;
    const label = `Experiment ${oneLine(name, 60)}: ${oneLine(cls, 60)}, ${look(status).word}`;
    setAttr(this.frame, 'aria-label', locked === '' ? label : `${label} at last; ${locked}`);
    setAttr(this.frame, 'data-status', status);
    setAttr(this.frame, 'data-connection', locked === '' ? 'live' : 'lost');
    for (const row of this.rows) if (this.frame.contains(row.el)) row.update(state);
  }

  async run(name: Command['name'], args: unknown): Promise<boolean> {
    try {
      await this.store.send({ name, experiment: this.experiment, args } as Command);
      this.fail('');
      return true;
    } catch (error) {
      this.fail(messageOf(error));
      return false;
    }
  }

  open(request: Omit<OpenRequest, 'experiment'>): boolean {
    const detail: OpenRequest = { ...request, experiment: this.experiment };
    const init = { detail, bubbles: true, cancelable: true, composed: true };
    const unhandled = this.frame.dispatchEvent(new CustomEvent('workbench:open', init));
    if (!unhandled) return true;
    return (request.kind === 'graph' || request.kind === 'memory') && this.inline.open(detail);
  }

  fail(message: string): void {
    this.notice.show(message);
  }

  dispose(): void {
    for (const row of new Set([...this.rows, ...Object.values(this.bodies)])) row.dispose?.();
    this.popover.dispose();
    this.inline.dispose();
  }

  private refresh(): void {
    const kernel = this.store.get();
    const model = kernel.experiments.get(this.experiment);
    if (model) this.update(model, kernel);
  }

  private showBody(wanted: Body): void {
    const body = this.bodies[wanted];
    if (this.frame.contains(body.el)) return;
    for (const other of Object.values(this.bodies)) other.el.remove();
    this.modes.el.after(body.el);
  }
}

function bodyOf({ state, curves }: ExperimentModel): Body {
  if (state.failure && state.status === 'exception') {
    return state.failure.memory.length > 0 ? 'memory' : 'exception';
  }
  if (state.failure && state.status === 'nan') return 'nan';
  const nothing = state.step === 0 && !curves.get('train/loss')?.length;
  return nothing && state.status !== 'training' ? 'empty' : 'charts';
}
