import type { RunSummary } from '@torch-workbench/records';
import { iconButton } from '../controls/button';
import { Chip } from '../controls/chip';
import { drawOn, h, setAttr, setClass, setShown, setText } from '../dom';
import { messageOf } from '../errors';
import { age, oneLine, percent } from '../format';
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

export interface RunsOptions {
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
  const rows = new Rows<RunSummary>(
    body,
    ({ path }) => path,
    () => new RunRow(options.onOpen, remove),
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

class RunRow {
  readonly el: HTMLTableRowElement;
  private run: RunSummary | null = null;
  private isLeaving = false;
  private readonly name = h('td');
  private readonly chip = new Chip('wb-state');
  private readonly accuracy = h('td', { class: 'num acc' });
  private readonly age = h('span', { class: 'ago' });
  private readonly open: HTMLButtonElement;
  private readonly remove: HTMLButtonElement;

  constructor(
    onOpen: (run: RunSummary) => void,
    private readonly onDelete: (run: RunSummary) => Promise<void>,
  ) {
    this.open = iconButton('tensorboard', '', () => {
      if (this.run) onOpen(this.run);
    });
    this.remove = iconButton('trash', '', () => void this.delete());
    this.remove.classList.add('is-delete');
    const actions = h('span', { class: 'wb-acts' }, this.open, this.remove);
    const last = h('td', { class: 'num dim acts' }, this.age, actions);
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
    const label = `Open ${name} in TensorBoard`;
    setAttr(this.open, 'aria-label', label);
    setAttr(this.open, 'title', label);
    const reason = whyNotDeleted(run);
    setAttr(this.remove, 'aria-label', `Delete ${name}`);
    setAttr(this.remove, 'title', reason || `Delete ${name}`);
    setAttr(this.remove, 'aria-disabled', reason ? 'true' : null);
  }

  private async delete(): Promise<void> {
    if (this.run === null || this.isLeaving) return;
    this.isLeaving = true;
    setAttr(this.el, 'aria-busy', 'true');
    await this.onDelete(this.run);
    this.isLeaving = false;
    setAttr(this.el, 'aria-busy', null);
  }
}
