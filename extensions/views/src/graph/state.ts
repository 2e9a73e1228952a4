/**
 * The drawing of one capture: what it is coloured by, and which questions about it can be answered.
 */
import { paintBranch } from './branch-paint';
import { withBranches } from './branches';
import { checkpointEstimate, type CheckpointEstimate } from './checkpoint';
import { shadeOf, type Shade } from './colour';
import type { GraphColumns } from './columns';
import { Drawing } from './drawing';
import { formatNumber, oneLine, plural } from './format';
import { normRange } from './gradients';
import { fullName } from './full-name';
import type { Group, Item } from './groups';
import { holdersOf, parametersOf, pathToParameters, type HighlightKind } from './highlight';
import { closedInside, withInside } from './inner';
import { readOperations, type Operation } from './operations';
import { Storages } from './storages';
import type { StepColours } from './step-colours';
import type { Palette } from './theme';
import { UnreachedIndex } from './unreached';

export type Colouring = 'bytes' | 'gradient' | 'time' | 'dtype' | 'none';

export class GraphState extends Drawing {
  /** Largest saved bytes of one operation. */
  readonly mostSaved: number;
  readonly dtypes: string[];
  /** Logarithms of the smallest and largest norm above zero; null without gradients. */
  readonly norms: [number, number] | null;
  /** Longest forward of a module that is not the whole model; 0 where none was watched. */
  readonly mostSeconds: number;
  readonly unreached: UnreachedIndex;
  colouring: Colouring = 'bytes';
  /** Another step's gradient norms, which take the place of `colouring` while they are there. */
  colours: StepColours | null = null;
  #held: Storages | null = null;

  constructor(record: GraphColumns, limit?: number) {
    const read = withInside(record, readOperations(record));
    super(record, withBranches(record, read), { limit, closed: closedInside });
    const { operations } = this;
    this.mostSaved = operations.reduce(
      (most, { saved, shared }) => Math.max(most, saved, shared),
      0,
    );
    const real = operations.filter(({ test }) => !test);
    this.dtypes = [...new Set(real.map(({ computed }) => computed))].sort();
    this.norms = normRange(operations);
    this.mostSeconds = record.modules.reduce(
      (most, { path, forward_s: seconds }) => (path === '' ? most : Math.max(most, seconds ?? 0)),
      0,
    );
    this.unreached = new UnreachedIndex(record.unreached);
  }

  override paintAsked = paintBranch;

  override shade(item: Item, palette: Palette): Shade {
    return shadeOf(item, this, palette);
  }

  /** `⊘ 3 without gradient`; the count alone where there is no room for the words. */
  override chips(group: Group): readonly string[] {
    const text = this.unreached.chip(group);
    return text ? [`⊘ ${text}`, `⊘ ${text.split(' ')[0]}`] : [];
  }

  override get fullBar(): number {
    const { colouring, colours } = this;
    const ofBytes = colouring === 'bytes' || colouring === 'none';
    return colours || !ofBytes ? 0 : this.mostSaved;
  }

  override lossOf(operation: Operation): string {
    const { loss } = this.record;
    if (operation !== this.root) return '';
    return loss === null ? 'loss' : `loss ${formatNumber(loss)}`;
  }

  override litText(): string {
    const { highlight, operations, record } = this;
    if (!highlight) return '';
    const name = oneLine(fullName(highlight.from, record).slice(0, 120));
    if (highlight.kind === 'holders' && this.storages.distinct(highlight.from).length === 0)
      return `${name} holds nothing for backward`;
    return highlight.kind === 'path'
      ? `Path of the gradient from ${name} to ${plural(parametersOf(highlight, operations).length, 'parameter')}`
      : `${plural(highlight.lit.size, 'operation holds', 'operations hold')} what ${name} holds for backward`;
  }

  /** A parameter without a gradient is found at the innermost drawn module around it. */
  override homes(fits: (text: string) => boolean): Group[] {
    return this.record.unreached
      .filter(({ name, reason }) => fits(`${name} ${reason}`))
      .slice(0, 1000)
      .map(({ name }) => this.unreached.moduleOf(name, this.tree.groups, this.tree.root));
  }

  /** What holds what; made on first use. */
  get storages(): Storages {
    this.#held ??= new Storages(this.record, this.operations);
    return this.#held;
  }

  /** Why a colouring has nothing to show, in one sentence; empty where it has. */
  missing(colouring: Colouring): string {
    if (colouring === 'gradient' && !this.record.gradients)
      return 'Backward was not watched: capture a step, or run backward inside `with wb.graph(model):`.';
    if (colouring === 'time' && this.mostSeconds === 0)
      return 'Modules were not timed: capture a step after the first, or run forward inside `with wb.graph(model):`.';
    return '';
  }

  /** The next capture is looked at as the one before, where it can be. */
  lookLike(before: GraphState | null): void {
    if (!before) return;
    if (!this.missing(before.colouring)) this.colouring = before.colouring;
    this.resemble(before);
  }

  /** Lights a part of the graph; requesting what is lit already puts it out. */
  light(kind: HighlightKind, item: Item): void {
    const { highlight, operations } = this;
    if (highlight?.kind === kind && highlight.from === item) this.highlight = null;
    else if (kind === 'path') this.highlight = pathToParameters(item, operations, this.flows);
    else this.highlight = holdersOf(item, operations, this.storages);
  }

  checkpoint(group: Group): CheckpointEstimate | null {
    return checkpointEstimate(group, this.record, this.operations, this.storages);
  }
}
