/**
 * The norms of one step of a gradient flow, laid over the drawing of a graph: which row of the flow
 * every operation and every box belongs to.
 *
 * A row is a module, a range of neighbours in a long list of modules, or the parameters that a
 * module holds beside its submodules. An operation takes the row of its module, or of the nearest
 * module around it that has one; a box takes the root of the sum of squares over its operations'
 * rows.
 */
import type { Group, Item } from '../graph/groups';
import type { GraphState } from '../graph/state';
import type { StepColours, StepNorm } from '../graph/step-colours';
import { limitsOf, readingAt, type FlowColumns } from './strip';

type Row = FlowColumns['rows'][number];
type Modules = GraphState['record']['modules'];

/** The colours of the sampled step in `column`. */
export function stepColours(record: FlowColumns, column: number): StepColours {
  const limits = limitsOf(record);
  const known = new Map<Item, StepNorm | null>();
  return {
    step: record.step[column] ?? 0,
    range: limits && [Math.log10(limits[0]), Math.log10(limits[1])],
    normOf(item, state) {
      let found = known.get(item);
      if (found === undefined) {
        found = together(record, column, rowsOf(item, state, record.rows));
        known.set(item, found);
      }
      return found;
    },
  };
}

/** Several rows as one; null where none of them was measured. */
function together(record: FlowColumns, column: number, rows: readonly number[]): StepNorm | null {
  const readings = rows.map((row) => ({ row, reading: readingAt(record, row, column) }));
  const measured = readings.filter(({ reading }) => reading.kind !== 'absent');
  const [first] = measured;
  if (!first) return null;
  const label = record.rows[first.row]?.label ?? '';
  const name = measured.length === 1 ? label : `${measured.length} modules together`;
  if (measured.some(({ reading }) => reading.kind === 'infinite')) return { norm: Infinity, name };
  const norms = measured.flatMap(({ reading }) => (reading.kind === 'norm' ? [reading.value] : []));
  return { norm: norms.length > 0 ? Math.hypot(...norms) : NaN, name };
}

/** Rows of every operation and box, found once for a drawing and its rows. */
const placed = new WeakMap<GraphState, Place>();

interface Place {
  rows: readonly Row[];
  readonly of: Map<Item, number[]>;
}

function rowsOf(item: Item, state: GraphState, rows: readonly Row[]): readonly number[] {
  let place = placed.get(state);
  if (!place || !sameRows(place.rows, rows)) {
    place = { rows, of: new Map() };
    placed.set(state, place);
    placeAll(state, rows, place.of);
  }
  place.rows = rows; // the next comparison is one of identity
  return place.of.get(item) ?? [];
}

/** Whether two records have the same rows: then the columns of one continue the other's. */
export function sameRows(some: readonly Row[], others: readonly Row[]): boolean {
  if (some === others) return true;
  const same = ({ path, label, num_modules: count }: Row, at: number): boolean =>
    others[at]?.path === path && others[at].label === label && others[at].num_modules === count;
  return some.length === others.length && some.every(same);
}

function placeAll(state: GraphState, rows: readonly Row[], of: Map<Item, number[]>): void {
  const byModule = rowsOfModules(state.record.modules, rows);
  for (const operation of state.operations) {
    const row = byModule[operation.module] ?? -1;
    if (row >= 0) of.set(operation, [row]);
  }
  const inside = (group: Group): number[] => {
    const found = new Set<number>();
    for (const child of group.children)
      for (const row of child.kind === 'operation' ? (of.get(child) ?? []) : inside(child))
        found.add(row);
    const list = [...found].sort((a, b) => a - b);
    of.set(group, list);
    return list;
  };
  inside(state.tree.root);
}

/** The row of every module; -1 for one without. */
export function rowsOfModules(modules: Modules, rows: readonly Row[]): Int32Array {
  const exact = new Map<string, number>();
  const around = new Map<string, number>();
  rows.forEach((row, at) => {
    exact.set(row.path, at);
    if (!isBesideOthers(row, rows))
      for (const path of membersOf(row, modules)) around.set(path, at);
  });
  return Int32Array.from(modules, ({ path, parent }) => {
    // The loss is no module of the model.
    if (parent < 0 && path !== '') return -1;
    for (let up = path; up !== ''; up = up.slice(0, Math.max(0, up.lastIndexOf('.')))) {
      const row = around.get(up);
      if (row !== undefined) return row;
    }
    return around.get('') ?? exact.get(path) ?? -1;
  });
}

/** Whether a row holds only the parameters of the module itself: others stand for what is in it. */
function isBesideOthers({ path }: Row, rows: readonly Row[]): boolean {
  const within = path === '' ? '' : `${path}.`;
  return rows.some((other) => other.path !== path && other.path.startsWith(within));
}

/** Paths of the modules a row stands for: one, or neighbours from its path to its label's last. */
function membersOf({ path, label, cls, num_modules: count }: Row, modules: Modules): string[] {
  if (count <= 1) return [path];
  const stem = path.slice(0, path.lastIndexOf('.') + 1);
  // `3–4 Block` where the path is a bare number.
  const plain = cls !== '' && label.endsWith(` ${cls}`) ? label.slice(0, -cls.length - 1) : label;
  const last = stem + plain.slice(plain.lastIndexOf('–') + 1);
  const siblings = modules
    .map((module) => module.path)
    .filter((one) => one.startsWith(stem) && !one.slice(stem.length).includes('.'));
  // A capture leaves out modules in which nothing happened, so the ends may be missing.
  const [low, high] = [path, last].map((end) => Number(end.slice(stem.length)));
  if (low !== undefined && high !== undefined && low <= high)
    return siblings.filter((one) => within(Number(one.slice(stem.length)), low, high));
  const [from, to] = [siblings.indexOf(path), siblings.indexOf(last)];
  return from < 0 || to < from ? [path] : siblings.slice(from, to + 1);
}

function within(value: number, low: number, high: number): boolean {
  return value >= low && value <= high;
}
