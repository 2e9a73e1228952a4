/** What stands below the chart: the map of segments, who holds memory, or the same as tables. */
import { h } from '../graph/dom';
import type { Palette } from '../graph/theme';
import { FlameFace, type FlameEvents } from './flame-face';
import { HoldersList } from './holders';
import { SegmentMap } from './map';
import type { Model } from './model';
import type { Parts } from './part';
import { obstaclesOf } from './refusals';
import { SegmentTable } from './segment-table';
import { phaseTable } from './tables';
import type { Face } from './toolbar';

export class Faces {
  readonly map: SegmentMap;
  readonly flame: FlameFace;
  readonly elements: readonly HTMLElement[];
  current: Face = 'map';
  private readonly sizes = new SegmentTable();
  private readonly phases = h('div', {});
  private readonly tables = h('div', { class: 'wv-rows' });
  private readonly holders: HoldersList;

  constructor(onSelect: (block: number | null) => void, load: Parts['flame'], flame: FlameEvents) {
    this.flame = new FlameFace(load, flame);
    this.map = new SegmentMap(onSelect);
    this.holders = new HoldersList(onSelect);
    this.tables.append(this.sizes.element, this.phases);
    this.elements = [this.map.element, this.flame.element, this.tables, ...this.holders.elements];
  }

  open({ record, series }: Model): void {
    this.phases.replaceChildren(phaseTable(record, series));
  }

  /** Shows a face, or, without segments, who holds memory in place of a map. */
  set(wanted: Face, segments: boolean): void {
    this.current = wanted === 'map' && !segments ? 'holders' : wanted;
    const { current, holders, map, sizes, tables } = this;
    map.element.hidden = current !== 'map';
    this.flame.element.hidden = current !== 'flame';
    tables.hidden = current !== 'table';
    tables.classList.toggle('wv-own', !segments);
    sizes.element.hidden = !segments;
    holders.hidden = current !== 'holders' && (current !== 'table' || segments);
  }

  show(model: Model, palette: Palette | null, block: number | null, moving: boolean): void {
    const { record } = model;
    if (!this.holders.hidden) this.holders.show(model, block, moving);
    if (this.current === 'flame' && palette) this.flame.show(model, palette, block);
    if (!model.hasSegments) return;
    if (this.current === 'table') this.sizes.show(record, model.moment());
    if (this.current !== 'map' || !palette) return;
    const fits = model.isFiltered ? model.fits : null;
    const obstacles = obstaclesOf(record, model.refusal);
    this.map.show({ record, moment: model.moment(), palette, fits, block, obstacles });
  }

  dispose(): void {
    this.map.dispose();
    this.flame.dispose();
    this.holders.dispose();
  }
}
