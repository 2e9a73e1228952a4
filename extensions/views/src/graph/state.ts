/** What the graph view shows at a moment: the record's tree, what is open, selected and found. */
import { checkpointEstimate, type CheckpointEstimate } from './checkpoint';
import type { GraphColumns } from './columns';
import { normRange } from './gradients';
import { buildTree, type Group, type Item, type Tree } from './groups';
import { holdersOf, pathToParameters, type Highlight, type HighlightKind } from './highlight';
import { boxOf, layout, type Box, type Layout } from './layout';
import { readOperations, type Flow, type Operation } from './operations';
import { parentOf } from './edges';
import { find } from './search';
import { Storages } from './storages';
import { UnreachedIndex } from './unreached';
import { initiallyOpen, reveal } from './visible';

export type Colouring = 'bytes' | 'gradient' | 'time' | 'dtype' | 'none';

const NARROWEST = 1.5;
const WIDEST = 9.5;

export class GraphState {
  readonly record: GraphColumns;
  readonly operations: Operation[];
  readonly flows: Flow[];
  readonly tree: Tree;
  readonly root: Operation | null;
  /** Largest saved bytes of one operation and largest value along an edge. */
  readonly mostSaved: number;
  readonly mostFlow: number;
  readonly dtypes: string[];
  /** Logarithms of the smallest and largest norm above zero; null without gradients. */
  readonly norms: [number, number] | null;
  /** Longest forward of a module that is not the whole model; 0 where none was watched. */
  readonly mostSeconds: number;
  readonly unreached: UnreachedIndex;
  readonly open: Set<Group>;
  layout: Layout;
  selected: Item | null = null;
  colouring: Colouring = 'bytes';
  matches: Item[] = [];
  matched: ReadonlySet<Item> = new Set();
  query = '';
  /** Whether what the search does not name steps back. */
  dims = false;
  highlight: Highlight | null = null;
  #held: Storages | null = null;
  #owners: Map<number, Operation> | null = null;

  constructor(record: GraphColumns, limit?: number) {
    const { operations, flows, root } = readOperations(record);
    this.record = record;
    this.operations = operations;
    this.flows = flows;
    this.root = operations[root] ?? null;
    this.tree = buildTree(record, operations);
    this.mostSaved = operations.reduce(
      (most, { saved, shared }) => Math.max(most, saved, shared),
      0,
    );
    this.mostFlow = flows.reduce((most, { bytes }) => Math.max(most, bytes), 1);
    this.dtypes = [...new Set(operations.map(({ dtype }) => dtype))].sort();
    this.norms = normRange(operations);
    this.mostSeconds = record.modules.reduce(
      (most, { path, forward_s: seconds }) => (path === '' ? most : Math.max(most, seconds ?? 0)),
      0,
    );
    this.unreached = new UnreachedIndex(record.unreached);
    this.open = initiallyOpen(this.tree, limit);
    this.layout = this.#arrange();
  }

  /** Width of a line in drawing units: grows with the square root of the bytes. */
  readonly widthOf = (bytes: number): number =>
    NARROWEST + WIDEST * Math.sqrt(Math.max(0, bytes) / this.mostFlow);

  /** What holds what; made when first asked for. */
  get storages(): Storages {
    this.#held ??= new Storages(this.record, this.operations);
    return this.#held;
  }

  /** Why a colouring has nothing to show, in one sentence; empty where it has. */
  missing(colouring: Colouring): string {
    if (colouring === 'gradient' && !this.record.gradients)
      return 'Backward was not watched: capture a step, or run backward inside `with wb.graph(model):`.';
    if (colouring === 'time' && this.mostSeconds === 0)
      return 'Forward was not watched: capture a step, or run it inside `with wb.graph(model):`.';
    return '';
  }

  /** The next capture is looked at as the one before, where it can be. */
  lookLike(before: GraphState | null): void {
    if (before && !this.missing(before.colouring)) this.colouring = before.colouring;
  }

  /** Lights a part of the graph; asking for what is lit already puts it out. */
  light(kind: HighlightKind, item: Item): void {
    const { highlight, operations } = this;
    if (highlight?.kind === kind && highlight.from === item) this.highlight = null;
    else if (kind === 'path') this.highlight = pathToParameters(item, operations, this.flows);
    else this.highlight = holdersOf(item, operations, this.storages);
  }

  /** The operation that a backward node belongs to. */
  operationOf(row: number): Operation | null {
    this.#owners ??= new Map(this.operations.flatMap((one) => one.rows.map((of) => [of, one])));
    return this.#owners.get(row) ?? null;
  }

  /** The first operation that made a value which is not finite. */
  get firstNonFinite(): Operation | null {
    const found = this.record.non_finite;
    return found ? this.operationOf(found.node) : null;
  }

  checkpoint(group: Group): CheckpointEstimate | null {
    return checkpointEstimate(group, this.record, this.operations, this.flows, this.storages);
  }

  #arrange(): Layout {
    return layout(this.tree, this.flows, this.open, this.widthOf);
  }

  parent(item: Item): Group | null {
    return parentOf(this.tree, item);
  }

  /** Opens or closes a box; closing one also closes nothing inside it, so reopening restores it. */
  toggle(group: Group): void {
    if (group === this.tree.root) return;
    if (this.open.has(group)) this.open.delete(group);
    else this.open.add(group);
    this.layout = this.#arrange();
    if (this.selected && !this.layout.boxes.has(this.selected)) this.selected = group;
  }

  setAll(open: boolean): void {
    this.open.clear();
    this.open.add(this.tree.root);
    if (open) for (const group of this.tree.groups) this.open.add(group);
    this.layout = this.#arrange();
    this.selected = this.selected && (boxOf(this.tree, this.layout, this.selected)?.item ?? null);
  }

  /** Selects an item and opens what hides it. */
  select(item: Item | null): void {
    this.selected = item;
    if (!item || this.layout.boxes.has(item)) return;
    reveal(this.open, this.parent(item));
    this.layout = this.#arrange();
  }

  search(query: string): void {
    this.query = query;
    this.matches = find(this, query);
    this.matched = new Set(this.matches);
    // The drawing itself stands for parameters that are nowhere in it: then nothing steps back.
    this.dims = query !== '' && !this.matched.has(this.tree.root);
  }

  box(item: Item | null): Box | undefined {
    return item ? boxOf(this.tree, this.layout, item) : undefined;
  }

  /** Visible neighbours of the selection: what it used and what used it. */
  neighbours(item: Item): { before: Item[]; after: Item[] } {
    const before: Item[] = [];
    const after: Item[] = [];
    for (const { from, to } of this.layout.edges) {
      if (to === item) before.push(from);
      if (from === item) after.push(to);
    }
    return { before, after };
  }

  /** Boxes from the drawing down to an item. */
  path(item: Item): Group[] {
    const path: Group[] = [];
    for (let up = this.parent(item); up; up = up.parent) path.unshift(up);
    return path;
  }
}
