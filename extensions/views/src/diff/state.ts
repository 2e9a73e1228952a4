/** The drawing of two captures: what became of every box and line, and where the changes are. */
import { Drawing, type Tone } from '../graph/drawing';
import type { Shade } from '../graph/colour';
import { plural } from '../graph/format';
import type { Group, Item } from '../graph/groups';
import { Highlight } from '../graph/highlight';
import type { Box, Line } from '../graph/layout';
import { readOperations, type Operation } from '../graph/operations';
import type { Scene } from '../graph/paint';
import type { Palette } from '../graph/theme';
import type { DiffColumns } from './columns';
import { foldSame } from './fold-same';
import { ChangeIndex, type Filter } from './index-of-changes';
import { LineSides } from './line-sides';
import { coloursOf, paintMark } from './paint-mark';
import { shadeOf } from './shade';
import { FILTER_TEXTS, lossText } from './words';

/** More operations than this and the view opens with what changed alone. */
export const MANY = 300;

export interface DiffOptions {
  limit?: number | undefined;
  /** Whether what did not change is folded away; by default in a large diff. */
  onlyChanges?: boolean;
}

export class DiffState extends Drawing {
  readonly onlyChanges: boolean;
  readonly index: ChangeIndex;
  /** What a person goes through from change to change, in forward order. */
  readonly stops: readonly Item[];
  filter: Filter | null = null;
  readonly #lines: LineSides;
  readonly #moved = new Map<Group, string>();

  constructor(
    readonly diff: DiffColumns,
    options: DiffOptions = {},
  ) {
    const read = readOperations(diff);
    const { operations } = read;
    const index = new ChangeIndex(diff, operations);
    for (const operation of operations) {
      const state = index.stateOf(operation.id);
      const row = operation.rows[operation.rows.length - 1] ?? 0;
      operation.sides = state === 'removed' ? 1 : state === 'added' ? 2 : 3;
      operation.tag = `${state} ${diff.node_shape_b[row]} ${diff.node_dtype_b[row]}`;
      operation.loss = [diff.a.root, diff.b.root].some((root) => operation.rows.includes(root));
    }
    const onlyChanges = options.onlyChanges ?? (operations.length > MANY && !index.isEqual);
    const isSame = (id: number): boolean => index.stateOf(id) === 'same';
    super(diff, read, {
      limit: options.limit,
      closed: (group) => index.state(group) === 'same',
      ...(onlyChanges ? { fold: foldSame(isSame) } : {}),
    });
    this.index = index;
    this.onlyChanges = onlyChanges;
    this.#lines = new LineSides(diff, this);
    this.stops = stopsIn(this.tree.root, index);
  }

  override shade(item: Item, palette: Palette): Shade {
    return shadeOf(item, this, coloursOf(palette), palette);
  }

  /** `−9 +1 ≠2`, and the number of changes where there is no room for that. */
  override chips(group: Group): readonly string[] {
    const counts = (['removed', 'added', 'changed'] as const)
      .map((state) => ({ sign: FILTER_TEXTS[state].sign, count: this.index.count(group, state) }))
      .filter(({ count }) => count > 0);
    if (counts.length === 0)
      return this.open.has(group) ? [] : [this.#movedIn(group)].filter(Boolean);
    const total = counts.reduce((sum, { count }) => sum + count, 0);
    return [counts.map(({ sign, count }) => `${sign}${count}`).join(' '), `≠${total}`];
  }

  /** Of a closed box: an open one shows it on its operations. Found once, drawn many times. */
  #movedIn(group: Group): string {
    const found = this.#moved.get(group) ?? this.index.moved(group);
    this.#moved.set(group, found);
    return found;
  }

  override get fullBar(): number {
    return 0;
  }

  override lossOf(operation: Operation): string {
    return lossText(this.diff, operation);
  }

  override litText(): string {
    const { filter } = this;
    if (!filter) return '';
    const count = this.index.count(this.tree.root, filter);
    return `${FILTER_TEXTS[filter].lit}: ${plural(count, 'operation')}`;
  }

  override decorate(scene: Scene, box: Box): void {
    paintMark(scene, box, this.index.state(box.item), this.diff);
  }

  override tone(line: Line, palette: Palette): Tone | null {
    const sides = this.#lines.of(line);
    if (sides === 'same') return null;
    const other = this.filter === 'a' ? 'added' : this.filter === 'b' ? 'removed' : '';
    if (this.highlight && sides === other) return { colour: 'transparent', dashed: false };
    return { colour: coloursOf(palette)[sides].ink, dashed: sides === 'removed' };
  }

  override speck(item: Item, palette: Palette): string {
    const state = this.index.state(item);
    return state === 'same' ? palette.stroke2 : coloursOf(palette)[state].ink;
  }

  override words(operation: Operation): string {
    const { state, a, b } = this.index.of(operation.id);
    return `${state} ${a?.dtype} ${b?.dtype} ${b?.shape}`;
  }

  /** Lights what a filter names; requesting what is lit already lights everything again. */
  light(filter: Filter): void {
    const again = this.filter === filter && this.highlight !== null;
    this.filter = again ? null : filter;
    this.highlight = null;
    if (again) return;
    const lit = new Set<number>();
    for (const { id } of this.operations) if (this.index.fits(id, filter)) lit.add(id);
    this.highlight = new Highlight('filter', this.tree.root, lit, this.operations.length);
  }

  /** The change after (or before) the selection; round the end. */
  nextStop(backwards: boolean): Item | null {
    const { stops, selected } = this;
    const at = selected ? stops.indexOf(selected) : -1;
    const count = stops.length;
    if (at >= 0) return stops[(at + (backwards ? -1 : 1) + count) % count] ?? null;
    const from = selected ? startOf(selected) : backwards ? 0 : -1;
    const after = stops.findIndex((stop) => startOf(stop) > from);
    const next = after < 0 ? 0 : after;
    return stops[backwards ? (next - 1 + count) % count : next] ?? null;
  }
}

function startOf(item: Item): number {
  return item.kind === 'operation' ? item.id : item.start;
}

/** The outermost boxes that left or joined as a whole, rolled-up boxes, and single operations. */
function stopsIn(group: Group, index: ChangeIndex): Item[] {
  return group.children.flatMap((item) => {
    const state = index.state(item);
    if (state === 'same') return [];
    if (item.kind === 'operation' || item.kind === 'repeat' || state !== 'changed') return [item];
    return stopsIn(item, index);
  });
}
