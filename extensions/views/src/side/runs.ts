import type { RunSummary } from '@torch-workbench/records';
import { iconButton } from '../controls/button';
import { Chip } from '../controls/chip';
import { drawOn, h, setAttr, setClass, setShown, setText } from '../dom';
import { messageOf } from '../errors';
import { age, count, oneLine, percent } from '../format';
import { icon } from '../icons';
import type { Dispose, Store } from '../store';
import { type DeletedRun, DeletedRuns } from './deleted-runs';
import { Rows } from './rows';
import { RunFilter } from './run-filter';

export interface RunsModel {
  readonly runs: readonly RunSummary[];
  /** Those that can be put back, the one deleted last first. */
  readonly deleted: readonly DeletedRun[];
}

/** The experiment of the notebook in sight, into which a run can be taken. */
export interface RunTarget {
  readonly name: string;
  readonly status: string;
  /** Steps done so far. */
  readonly step: number;
}

export interface RunsOptions {
  /** Into which experiment a run would be taken; null if the notebook has none. */
  readonly into: () => RunTarget | null;
  /** Has that experiment go on where a run is. */
  readonly onResume: (run: RunSummary) => Promise<void>;
  /** Loads the best weights of a run into its model. */
  readonly onLoadBest: (run: RunSummary) => Promise<void>;
  /** Opens a run in TensorBoard. */
  readonly onOpen: (run: RunSummary) => void;
  /** Deletes a run so that it can be put back. */
  readonly onDelete: (run: RunSummary) => Promise<void>;
  /** Puts a run back; resolves to where it is again. */
  readonly onRestore: (run: DeletedRun) => Promise<string>;
}

type Key = 'name' | 'status' | 'accuracy' | 'age';

interface Column {
  readonly key: Key;
  readonly label: string;
  readonly numeric: boolean;
  /** Ascending; runs without a value come last either way. */
  readonly value: (run: RunSummary) => string | number | null;
}

const COLUMNS: readonly Column[] = [
  { key: 'name', label: 'Name', numeric: false, value: (run) => run.name },
  { key: 'status', label: 'State', numeric: false, value: (run) => run.status },
  { key: 'accuracy', label: 'Best acc.', numeric: true, value: (run) => run.best_accuracy },
  { key: 'age', label: 'Age', numeric: true, value: (run) => -run.updated_at },
];

const AGE_MS = 30_000;
/** A run that has written nothing for so long may have died on another machine; its lock knows. */
const SILENT_S = 600;
const AFTER_ITS_END = 'exp.resume_from and exp.run(epochs=...) train it on.';

/**
 * The runs on disk: sorted, filtered, with what can be done to one while it is pointed at or focused.
 * The Delete key deletes the one that is focused.
 */
export function mountRuns(
  el: HTMLElement,
  store: Store<RunsModel, never>,
  options: RunsOptions,
): Dispose {
  let sort: { key: Key; down: boolean } = { key: 'age', down: false };
  /** Where a run that was put back is to be focused once it is in the list. */
  let back: string | null = null;
  const head = h('tr');
  const body = h('tbody');
  const widths = h('colgroup', {}, ...COLUMNS.map(({ key }) => h('col', { class: `is-${key}` })));
  const table = h('table', { class: 'wb-runs' }, widths, h('thead', {}, head), body);
  const filter = new RunFilter(() => draw());
  const none = h('p', { class: 'wb-side-empty' });
  const restore = async (run: DeletedRun): Promise<void> => {
    const name = oneLine(run.name, 80);
    try {
      const path = await options.onRestore(run);
      back = deleted.hasFocus || document.activeElement === document.body ? path : null;
      const [was, is] = [run.path, path].map((one) => one.slice(one.lastIndexOf('/') + 1));
      deleted.note(was === is ? '' : `${name} is back in ${is}: there is a new ${was}.`);
      deleted.say(`${name} is back`);
    } catch (error) {
      deleted.fail(messageOf(error));
    }
    draw();
  };
  const deleted = new DeletedRuns(restore);
  const frame = h('div', { class: 'wb wb-list' }, filter.el, table, none, deleted.el);
  el.append(frame);
  const remove = async (run: RunSummary): Promise<void> => {
    const reason = whyNotDeleted(run);
    deleted.fail(reason);
    if (reason !== '') return;
    try {
      await options.onDelete(run);
      deleted.say(`${oneLine(run.name, 80)} is deleted, Undo puts it back`);
    } catch (error) {
      deleted.fail(messageOf(error));
    }
  };
  /** Takes a run, or its weights, into the experiment of the notebook. */
  const take = async (
    run: RunSummary,
    why: (run: RunSummary, into: RunTarget | null) => string,
    act: (run: RunSummary) => Promise<void>,
    done: (run: string, into: string) => string,
  ): Promise<void> => {
    const into = options.into();
    const reason = why(run, into);
    deleted.fail(reason);
    if (reason !== '' || into === null) return;
    try {
      await act(run);
      deleted.note(done(oneLine(run.name, 80), oneLine(into.name, 80)));
    } catch (error) {
      deleted.fail(messageOf(error));
    }
  };
  const actions: RowActions = {
    into: options.into,
    open: options.onOpen,
    remove,
    resume: (run) =>
      take(
        run,
        whyNotResumed,
        options.onResume,
        (name, into) => `${into} goes on where ${name} was.`,
      ),
    loadBest: (run) =>
      take(
        run,
        whyNotLoaded,
        options.onLoadBest,
        (name, into) => `The best weights of ${name} are in ${into}.`,
      ),
  };
  const rows = new Rows<RunSummary>(
    body,
    ({ path }) => path,
    () => new RunRow(actions),
  );
  const titles = COLUMNS.map((column) => {
    const title = h('button', { type: 'button' }, column.label);
    title.addEventListener('click', () => {
      sort = { key: column.key, down: sort.key === column.key && !sort.down };
      draw();
    });
    const cell = h('th', { scope: 'col', class: column.numeric ? 'num' : '' }, title);
    return { column, cell, title };
  });
  head.append(...titles.map((one) => one.cell));
  const draw = (): void => {
    for (const { column, cell, title } of titles) {
      const on = column.key === sort.key;
      setAttr(cell, 'aria-sort', on ? (sort.down ? 'descending' : 'ascending') : null);
      title.querySelector('svg')?.remove();
      if (on) title.append(icon('ascending', 12));
    }
    const all = store.get();
    const matching = filter.apply(all.runs);
    keepFocus(body, deleted, () => {
      rows.show(sorted(matching, sort));
      deleted.show(all.deleted);
    });
    setShown(table, all.runs.length > 0);
    setShown(none, matching.length === 0);
    const query = oneLine(filter.query, 60);
    setText(none, all.runs.length === 0 ? 'No run is left here.' : `No run matches “${query}”.`);
    setClass(filter.el, 'is-narrowing', filter.query !== '');
    const restored = rowsOf(body).find((row) => row.dataset['path'] === back);
    if (restored) {
      back = null;
      restored.querySelector('button')?.focus();
    }
  };
  const end = drawOn(store, draw, { period: AGE_MS });
  return () => {
    end();
    frame.remove();
  };
}

/** Why a run cannot be deleted as its list knows it; the server knows better, and says so too. */
function whyNotDeleted({ name, status }: RunSummary): string {
  const who = oneLine(name, 80);
  if (status === 'detached') return `The ranks of ${who} train on: wb.attach it and stop it first.`;
  const does = status === 'training' ? 'is training' : status === 'paused' ? 'is paused' : '';
  return does && `${who} ${does}: stop it first.`;
}

/** Why a run cannot go on in the notebook's experiment, or its weights not be loaded there. */
function whyNotTaken({ name, checkpoint }: RunSummary, into: RunTarget | null): string {
  const who = oneLine(name, 80);
  if (checkpoint === null) return `${who} has no checkpoint yet.`;
  return into === null ? `Run the cells that create the experiment of ${who} first.` : '';
}

function whyNotResumed(run: RunSummary, into: RunTarget | null): string {
  const who = oneLine(run.name, 80);
  if (run.status === 'detached') {
    return `The ranks of ${who} train on without their kernel: wb.attach reconnects to them.`;
  }
  if (run.status === 'finished') return `${who} has reached its end: ${AFTER_ITS_END}`;
  const silent = Date.now() / 1000 - run.updated_at > SILENT_S;
  if (run.status === 'training' && !silent) return `${who} is training.`;
  const reason = whyNotTaken(run, into);
  if (reason !== '' || into === null || into.step === 0) return reason;
  const own = oneLine(into.name, 80);
  return `${own} has trained already: run its cell again, then resume ${who} in it.`;
}

function whyNotLoaded(run: RunSummary, into: RunTarget | null): string {
  const reason = whyNotTaken(run, into);
  if (reason !== '' || into?.status !== 'training') return reason;
  return `${oneLine(into.name, 80)} is training: pause it first.`;
}

function rowsOf(body: HTMLTableSectionElement): HTMLTableRowElement[] {
  return [...body.rows];
}

/**
 * Redraws the rows. A row that was focused and is moved keeps the focus; one that is gone leaves it
 * to the row in its place, so that the next one can be dealt with, or to Undo.
 */
function keepFocus(body: HTMLTableSectionElement, deleted: DeletedRuns, redraw: () => void): void {
  const focused = document.activeElement;
  const at = rowsOf(body).findIndex((row) => row.contains(focused));
  redraw();
  if (at < 0 || !(focused instanceof HTMLElement) || document.activeElement === focused) return;
  const next = body.rows[Math.min(at, body.rows.length - 1)];
  if (focused.isConnected) focused.focus();
  else if (next) next.querySelector<HTMLElement>('.is-delete')?.focus();
  else deleted.focus();
}

function sorted(runs: readonly RunSummary[], sort: { key: Key; down: boolean }): RunSummary[] {
  const value = COLUMNS.find((column) => column.key === sort.key)?.value ?? (() => null);
  return [...runs].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    const order =
      typeof x === 'string'
        ? x.localeCompare(String(y), undefined, { numeric: true })
        : x - Number(y);
    return sort.down ? -order : order;
  });
}

interface RowActions {
  readonly into: () => RunTarget | null;
  readonly open: (run: RunSummary) => void;
  readonly remove: (run: RunSummary) => Promise<void>;
  readonly resume: (run: RunSummary) => Promise<void>;
  readonly loadBest: (run: RunSummary) => Promise<void>;
}

class RunRow {
  readonly el: HTMLTableRowElement;
  private run: RunSummary | null = null;
  private isBusy = false;
  private readonly name = h('td');
  private readonly chip = new Chip('wb-state');
  private readonly accuracy = h('td', { class: 'num acc' });
  private readonly age = h('span', { class: 'ago' });
  private readonly resume: HTMLButtonElement;
  private readonly best: HTMLButtonElement;
  private readonly open: HTMLButtonElement;
  private readonly remove: HTMLButtonElement;

  constructor(private readonly actions: RowActions) {
    this.resume = iconButton('resume', '', () => void this.during(actions.resume));
    this.best = iconButton('weights', '', () => void this.during(actions.loadBest));
    this.open = iconButton('tensorboard', '', () => {
      if (this.run) actions.open(this.run);
    });
    this.remove = iconButton('trash', '', () => void this.delete());
    this.remove.classList.add('is-delete');
    const buttons = [this.resume, this.best, this.open, this.remove];
    const acts = h('span', { class: 'wb-acts' }, ...buttons);
    const last = h('td', { class: 'num dim acts' }, this.age, acts);
    this.el = h('tr', {}, this.name, h('td', {}, this.chip.el), this.accuracy, last);
    this.el.addEventListener('keydown', (event) => {
      if (event.key === 'Delete') void this.delete();
    });
  }

  update(run: RunSummary): void {
    this.run = run;
    this.el.dataset['path'] = run.path;
    const name = oneLine(run.name, 80);
    setText(this.name, name);
    setAttr(this.name, 'title', oneLine(`${run.path}: ${run.model}, ${run.modes}`, 400));
    this.chip.update(run.status);
    const alone = `Its kernel died but its ranks still train: wb.attach reconnects to ${name}`;
    setAttr(this.chip.el, 'title', run.status === 'detached' ? alone : null);
    setText(this.accuracy, run.best_accuracy === null ? 'none' : percent(run.best_accuracy));
    this.accuracy.classList.toggle('dim', run.best_accuracy === null);
    setText(this.age, age(Date.now() / 1000, run.updated_at));
    offer(this.open, `Open ${name} in TensorBoard`, '', '');
    offer(this.remove, `Delete ${name}`, '', whyNotDeleted(run));
    const into = this.actions.into();
    const there = into === null ? '' : ` in ${oneLine(into.name, 80)}`;
    const at = run.checkpoint === null ? '' : ` from step ${count(run.checkpoint)}`;
    offer(this.resume, `Resume ${name}`, `${at}${there}`, whyNotResumed(run, into));
    offer(this.best, `Load the best weights of ${name}`, there, whyNotLoaded(run, into));
  }

  private delete(): Promise<void> {
    return this.during(this.actions.remove);
  }

  private async during(act: (run: RunSummary) => Promise<void>): Promise<void> {
    if (this.run === null || this.isBusy) return;
    this.isBusy = true;
    setAttr(this.el, 'aria-busy', 'true');
    await act(this.run);
    this.isBusy = false;
    setAttr(this.el, 'aria-busy', null);
  }
}

/** Names a button; one that cannot be used says why. */
function offer(button: HTMLButtonElement, label: string, more: string, reason: string): void {
  setAttr(button, 'aria-label', label);
  setAttr(button, 'title', reason || `${label}${more}`);
  setAttr(button, 'aria-disabled', reason ? 'true' : null);
}
