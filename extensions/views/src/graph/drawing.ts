/**
 * A graph as it is drawn: its boxes, what is open, selected and found. A subclass says what it is a
 * drawing of, one capture (`GraphState`) or two (`DiffState`), and what its colours mean.
 */
import type { Shade } from './colour';
import type { GraphColumns } from './columns';
import { parentOf } from './edges';
import { buildTree, type Fold, type Group, type Item, type Tree } from './groups';
import type { Highlight } from './highlight';
import { boxOf, layout, type Box, type Layout, type Line } from './layout';
import { isOperation, type Flow, type Operation, type Operations } from './operations';
import type { Scene } from './paint';
import { find } from './search';
import type { Palette } from './theme';
import { initiallyOpen, reveal } from './visible';

const NARROWEST = 1.5;
const WIDEST = 9.5;

/** How a line is drawn where it is not one of the plain ones. */
export interface Tone {
  colour: string;
  dashed: boolean;
}

export interface DrawingOptions {
  /** More visible nodes than this and the smallest modules start collapsed. */
  limit?: number | undefined;
  /** Groups that start collapsed whatever the limit. */
  closed?: (group: Group) => boolean;
  fold?: Fold;
}

export abstract class Drawing {
  readonly operations: Operation[];
  readonly flows: Flow[];
  readonly tree: Tree;
  readonly root: Operation | null;
  /** Largest value along an edge, in bytes. */
  readonly mostFlow: number;
  readonly open: Set<Group>;
  layout: Layout;
  selected: Item | null = null;
  matches: Item[] = [];
  matched: ReadonlySet<Item> = new Set();
  query = '';
  /** Whether what the search does not name steps back. */
  dims = false;
  highlight: Highlight | null = null;
  #owners: Map<number, Operation> | null = null;
  readonly #testFlows: readonly Flow[];

  constructor(
    readonly record: GraphColumns,
    { operations, flows, root, testFlows = [] }: Operations,
    { limit, closed, fold }: DrawingOptions = {},
  ) {
    this.operations = operations;
    this.flows = flows;
    this.#testFlows = testFlows;
    this.root = operations[root] ?? null;
    this.tree = buildTree(record, operations, fold);
    this.mostFlow = flows.reduce((most, { bytes }) => Math.max(most, bytes), 1);
    this.open = initiallyOpen(this.tree, limit, closed);
    this.layout = this.#arrange();
  }

  /** Fill, ink and figure of an item. */
  abstract shade(item: Item, palette: Palette): Shade;
  /** What a module's chip says, the longest wording first; empty for no chip. */
  abstract chips(group: Group): readonly string[];
  /** The text of the pill beside an operation that made a loss; empty beside any other. */
  abstract lossOf(operation: Operation): string;
  /** What is lit, in words. */
  abstract litText(): string;
  /** Bytes of a full bar under an operation's name; 0 for no bars. */
  abstract get fullBar(): number;

  /** Draws the box of a test that Python made; without it there are none. */
  paintAsked?(scene: Scene, box: Box, operation: Operation): void;
  /** Adds to a box that is drawn already. */
  decorate?(scene: Scene, box: Box): void;
  /** The tone of a line that is not plain. */
  tone?(line: Line, palette: Palette): Tone | null;
  /** An item's colour in the map. */
  speck?(item: Item, palette: Palette): string;
  /** What the search reads of an operation besides its names and shape. */
  words?(operation: Operation): string;
  /** Boxes that stand for what is nowhere in the drawing and that the search found. */
  homes?(fits: (text: string) => boolean): Group[];

  /** Width of a line in drawing units: grows with the square root of the bytes. */
  readonly widthOf = (bytes: number): number =>
    NARROWEST + WIDEST * Math.sqrt(Math.max(0, bytes) / this.mostFlow);

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

  #arrange(): Layout {
    return layout(this.tree, this.flows, this.open, this.widthOf, this.#testFlows);
  }

  /** Opens and selects what is open and selected in another drawing, by its names. */
  resemble(before: Drawing): void {
    const known = new Map(before.tree.groups.map((group) => [nameOf(group), group]));
    let differs = false;
    for (const group of this.tree.groups) {
      const twin = known.get(nameOf(group));
      if (!twin) continue;
      const open = before.open.has(twin);
      differs ||= open !== this.open.has(group);
      if (open) this.open.add(group);
      else this.open.delete(group);
      if (before.selected === twin) this.selected = group;
    }
    if (differs) this.layout = this.#arrange();
    const { selected } = before;
    const same = selected?.kind === 'operation' ? this.operations[selected.id] : undefined;
    if (same && selected && nameOf(same) === nameOf(selected)) this.select(same);
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

/** What an item has in common with its twin in the drawing of another capture. */
function nameOf(item: Item): string {
  if (isOperation(item)) return `${item.op} ${item.shape}`;
  return item.parent ? `${nameOf(item.parent)}/${item.kind} ${item.title}` : '';
}
