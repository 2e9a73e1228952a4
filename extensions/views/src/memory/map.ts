/** The segment map with its lens: hover, click and arrows choose a block. */
import { h, perFrame } from '../dom';
import type { Palette } from '../graph/theme';
import { Lens, LENS_HEIGHT } from './lens';
import { layMap, type MapLayout, type Piece } from './map-layout';
import { paintMap, paintSelection, placeOf, type Brush } from './map-paint';
import { describe, pointIn, titleOf } from './map-tip';
import { find, mostBroken, type Moment, type Segment } from './moment';
import { patternsOf, type Patterns } from './patterns';
import type { MemoryColumns } from './series';

export interface MapState {
  record: MemoryColumns;
  moment: Moment;
  palette: Palette;
  fits: Brush['fits'];
  obstacles: Brush['obstacles'];
  block: number | null;
}

const STATES = [
  ['a', 'allocated, by category'],
  ['p', 'pending free'],
  ['s', 'slack'],
  ['x', 'free, pinned'],
  ['f', 'free, releasable'],
] as const;

export class SegmentMap {
  private readonly canvas = h('canvas', {
    class: 'wv-map',
    tabindex: 0,
    role: 'application',
    'aria-label':
      'Segments of the allocator, to scale. Arrows walk from block to block, T shows them as a table.',
  });
  private readonly scroll = h('div', { class: 'wv-mapscroll' }, this.canvas);
  private readonly note = h('span', {});
  private readonly tip = h('div', { class: 'wv-tip', hidden: true });
  private readonly lens = new Lens();
  readonly element: HTMLElement;
  private readonly ground = document.createElement('canvas');
  private state: MapState | null = null;
  private layout: MapLayout | null = null;
  private drawnOf: MemoryColumns | null = null;
  private patterns: [Palette, Patterns] | null = null;
  private hover: number | null = null;
  private segment: Segment | null = null;
  private readonly next = perFrame(() => this.draw());
  private fresh = false;

  constructor(private readonly onSelect: (block: number | null) => void) {
    const keys = STATES.map(([kind, text]) =>
      h('span', { class: `wv-state wv-state-${kind}` }, text),
    );
    const head = h('div', { class: 'wv-part' }, h('b', {}, 'Segments'), this.note);
    head.append(h('span', { class: 'wv-space' }), ...keys);
    this.element = h('section', { class: 'wv-segments', 'aria-label': 'Segments' });
    this.element.append(head, this.scroll, this.lens.canvas, this.tip);
    this.listen();
  }

  show(state: MapState): void {
    this.state = state;
    this.fresh = true;
    this.redraw();
  }

  dispose(): void {
    this.next.cancel();
  }

  redraw(): void {
    this.next.request();
  }

  private draw(): void {
    const { state } = this;
    const width = this.element.clientWidth;
    if (!state || width < 120) return;
    if (this.fresh) this.layOut(state, width);
    const { layout } = this;
    if (!layout) return;
    const brush = this.brush(this.canvas, layout.width, Math.max(layout.height, 1), state);
    if (!brush) return;
    if (this.fresh) {
      brush.context.clearRect(0, 0, layout.width, layout.height);
      paintMap(brush, layout);
      [this.ground.width, this.ground.height] = [this.canvas.width, this.canvas.height];
      this.ground.getContext('2d')?.drawImage(this.canvas, 0, 0);
    } else this.copy(brush.context);
    this.fresh = false;
    paintSelection(brush, layout.pieces, layout.strip, this.segment, state.block, this.hover);
    this.drawLens(state, layout);
    // The lens takes its place when it is first drawn.
    this.fresh = this.scroll.clientHeight > 0 && this.scroll.clientHeight !== layout.room;
    if (this.fresh) this.redraw();
  }

  private layOut(state: MapState, width: number): void {
    const room = this.scroll.clientHeight || 300;
    const same = this.drawnOf === state.record;
    this.layout = layMap(state.moment, width, room, same ? this.layout : null);
    this.drawnOf = state.record;
    this.segment = this.chosen(state);
    this.note.textContent = titleOf(state.record, state.moment, this.layout);
  }

  /**
   * The segment of the chosen block, else of what is in the way, else the one looked at before, else
   * one that is partly free.
   */
  private chosen({ record, moment, block, obstacles: [first] }: MapState): Segment | null {
    const shown = block ?? first;
    const address = shown === undefined ? this.segment?.address : record.block_address[shown];
    const found = address === undefined ? null : find(moment.segments, address);
    if (found) return found;
    return mostBroken(moment.segments);
  }

  private brush(
    canvas: HTMLCanvasElement,
    width: number,
    height: number,
    state: MapState,
  ): Brush | null {
    const context = canvas.getContext('2d');
    if (!context) return null;
    const ratio = devicePixelRatio;
    const size = [Math.round(width * ratio), Math.round(height * ratio)] as const;
    if (canvas.width !== size[0] || canvas.height !== size[1]) {
      [canvas.width, canvas.height] = size;
      canvas.style.cssText = `width:${width}px;height:${height}px`;
      this.fresh ||= canvas === this.canvas;
    }
    if (this.patterns?.[0] !== state.palette)
      this.patterns = [state.palette, patternsOf(context, state.palette)];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { record, fits, palette, obstacles } = state;
    const { position, rules } = state.moment;
    const patterns = this.patterns[1];
    return { context, palette, patterns, record, position, rules, fits, obstacles };
  }

  private copy(context: CanvasRenderingContext2D): void {
    const transform = context.getTransform();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.ground, 0, 0);
    context.setTransform(transform);
  }

  private drawLens(state: MapState, layout: MapLayout): void {
    const { segment } = this;
    this.lens.canvas.hidden = !segment;
    if (!segment) return;
    const brush = this.brush(this.lens.canvas, layout.width, LENS_HEIGHT, state);
    const places = layout.pieces.filter((piece) => piece.segment === segment);
    const scale = places[0]?.scale ?? 1 / layout.bytesPerPixel;
    if (brush) this.lens.draw(brush, layout.width, segment, places, scale, state.block, this.hover);
  }

  private listen(): void {
    const { canvas, lens } = this;
    const leave = (): void => this.point(null, null);
    const onMap = (event: MouseEvent): { piece: Piece | null; block: number | null } => {
      const [x, y] = pointIn(canvas, event);
      const piece = this.pieceAt(x, y);
      return { piece, block: piece ? this.blockOn(piece, x) : null };
    };
    const onLens = (event: MouseEvent): number | null => {
      const [x, y] = pointIn(lens.canvas, event);
      return this.state ? lens.blockAt(this.state, x, y) : null;
    };
    canvas.addEventListener('pointermove', (event) => {
      const { piece, block } = onMap(event);
      this.point(block, piece?.segment ?? null, event);
    });
    lens.canvas.addEventListener('pointermove', (event) =>
      this.point(onLens(event), this.segment, event),
    );
    for (const one of [canvas, lens.canvas]) one.addEventListener('pointerleave', leave);
    canvas.addEventListener('click', (event) => {
      const { piece, block } = onMap(event);
      if (piece) this.segment = piece.segment;
      this.onSelect(block);
      this.redraw();
    });
    lens.canvas.addEventListener('click', (event) => this.onSelect(onLens(event)));
  }

  private pieceAt(x: number, y: number): Piece | null {
    const { layout } = this;
    const found = layout?.pieces.find(
      (piece) =>
        y >= piece.y && y <= piece.y + layout.strip && x >= piece.x && x <= piece.x + piece.width,
    );
    return found ?? null;
  }

  private blockOn(piece: Piece, x: number): number | null {
    const { state } = this;
    if (!state) return null;
    const found = piece.segment.blocks.find((block) => {
      const [from, to] = placeOf(state.record, piece, block);
      return x >= from && x < Math.max(to, from + 1);
    });
    return found ?? null;
  }

  /** Outlines a block and says in words what is under the pointer. */
  private point(block: number | null, segment: Segment | null, event?: MouseEvent): void {
    const { state, tip } = this;
    tip.hidden = !segment || !event;
    if (segment && event && state) {
      const box = this.element.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      tip.replaceChildren(...describe(state.record, segment, block));
      tip.style.left = `${Math.max(4, Math.min(box.width - 290, x + 12))}px`;
      tip.style.top = y > box.height - 70 ? `${y - 58}px` : `${y + 16}px`;
    }
    if (block === this.hover) return;
    this.hover = block;
    this.redraw();
  }

  /** Walks to a neighbour: the block before or after, or the first one of another segment. */
  walk(key: string): boolean {
    const { state } = this;
    // The frame that draws the newest moment may be late; a key does not wait for it.
    if (state && this.fresh) this.layOut(state, this.element.clientWidth);
    const { segment, layout } = this;
    if (!state || !segment || !layout) return false;
    const order = [...new Set(layout.pieces.map((piece) => piece.segment))].filter(
      ({ blocks }) => blocks.length > 0,
    );
    const at = order.indexOf(segment);
    const index = state.block === null ? -1 : segment.blocks.indexOf(state.block);
    const across = key === 'ArrowLeft' ? -1 : key === 'ArrowRight' ? 1 : 0;
    const next = across === 0 ? undefined : segment.blocks[Math.max(-1, index) + across];
    const step = key === 'ArrowUp' || key === 'ArrowLeft' ? -1 : 1;
    const other = order[at + step];
    const edge =
      step < 0 && across !== 0 ? other?.blocks[other.blocks.length - 1] : other?.blocks[0];
    const chosen = next ?? edge;
    if (chosen !== undefined) this.onSelect(chosen);
    return true;
  }

  contains(target: EventTarget | null): boolean {
    return target === this.canvas;
  }
}
