import type { RunSummary } from '@torch-workbench/records';
import { iconButton } from '../controls/button';
import { Chip } from '../controls/chip';
import { drawOn, h, setAttr, setText } from '../dom';
import { age, oneLine, percent } from '../format';
import { icon } from '../icons';
import type { Dispose, Store } from '../store';
import { Rows } from './rows';

export interface RunsModel {
  readonly runs: readonly RunSummary[];
}

export interface RunsOptions {
  /** Opens a run in TensorBoard. */
  readonly onOpen: (run: RunSummary) => void;
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

/** The runs on disk: sortable, with what can be done to one while it is pointed at or focused. */
export function mountRuns(
  el: HTMLElement,
  store: Store<RunsModel, never>,
  options: RunsOptions,
): Dispose {
  let sort: { key: Key; down: boolean } = { key: 'age', down: false };
  const head = h('tr');
  const body = h('tbody');
  const widths = h('colgroup', {}, ...COLUMNS.map(({ key }) => h('col', { class: `is-${key}` })));
  const table = h('table', { class: 'wb-runs' }, widths, h('thead', {}, head), body);
  const frame = h('div', { class: 'wb wb-list' }, table);
  el.append(frame);
  const rows = new Rows<RunSummary>(
    body,
    ({ path }) => path,
    () => new RunRow(options),
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
    rows.show(sorted(store.get().runs, sort));
  };
  const end = drawOn(store, draw, AGE_MS);
  return () => {
    end();
    frame.remove();
  };
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
  private readonly name = h('td');
  private readonly chip = new Chip('wb-state');
  private readonly accuracy = h('td', { class: 'num' });
  private readonly age = h('span', { class: 'ago' });
  private readonly open: HTMLButtonElement;

  constructor(options: RunsOptions) {
    this.open = iconButton('tensorboard', '', () => {
      if (this.run) options.onOpen(this.run);
    });
    const actions = h('span', { class: 'wb-acts' }, this.open);
    const last = h('td', { class: 'num dim acts' }, this.age, actions);
    this.el = h('tr', {}, this.name, h('td', {}, this.chip.el), this.accuracy, last);
  }

  update(run: RunSummary): void {
    this.run = run;
    const name = oneLine(run.name, 80);
    setText(this.name, name);
    setAttr(this.name, 'title', oneLine(`${run.path}: ${run.model}, ${run.modes}`, 400));
    this.chip.update(run.status);
    setText(this.accuracy, run.best_accuracy === null ? 'none' : percent(run.best_accuracy));
    this.accuracy.classList.toggle('dim', run.best_accuracy === null);
    setText(this.age, age(Date.now() / 1000, run.updated_at));
    const label = `Open ${name} in TensorBoard`;
    setAttr(this.open, 'aria-label', label);
    setAttr(this.open, 'title', label);
  }
}
