/** A above B on one scale, with one cursor through both. */
import { h } from '../graph/dom';
import { formatBytes, formatCount, shorten } from '../graph/format';
import type { Palette } from '../graph/theme';
import { peakPlace } from '../memory/blocks';
import { titleOf } from '../memory/sentence';
import type { Pair } from './pair';
import type { Side } from './side';
import { SideChart } from './side-chart';

const STEPS = 100;

export class Charts {
  readonly element = h('div', { class: 'wv-charts' });
  private readonly a: SideChart;
  private readonly b: SideChart;
  private readonly heads = [
    h('div', { class: 'wv-head' }),
    h('div', { class: 'wv-head' }),
  ] as const;
  private readonly aligned = h('p', { class: 'wv-aligned' });
  private cursor: number | null = null;

  constructor(private readonly say: (text: string) => void) {
    const events = { cursor: (place: number | null) => this.point(place) };
    this.a = new SideChart('A', events);
    this.b = new SideChart('B', events);
    this.element.append(this.heads[0], this.a.element, this.heads[1], this.b.element, this.aligned);
    this.element.addEventListener('keydown', (event) => this.key(event));
    this.element.addEventListener('focusout', () => this.point(null));
  }

  /** Shows two recordings; `names` stand in place of their titles. */
  open(pair: Pair, names: readonly [string, string] | undefined): void {
    [pair.a, pair.b].forEach((side, at) => {
      const name = names?.[at] ?? titleOf(side.record);
      this.heads[at]?.replaceChildren(...headOf(at === 0 ? 'A' : 'B', name, side));
    });
    this.aligned.textContent = alignment(pair);
  }

  /** Draws both, as they are lit now. */
  show(pair: Pair | null, palette: Palette | null): void {
    this.a.show(pair?.a ?? null, palette);
    this.b.show(pair?.b ?? null, palette);
  }

  dispose(): void {
    this.a.dispose();
    this.b.dispose();
  }

  private point(place: number | null): void {
    this.cursor = place;
    this.a.point(place);
    this.b.point(place);
  }

  private key(event: KeyboardEvent): void {
    const stride = (event.shiftKey ? 10 : 1) / STEPS;
    const at = this.cursor ?? 0;
    const to: Record<string, number> = {
      ArrowLeft: at - stride,
      ArrowRight: this.cursor === null ? 0 : at + stride,
      Home: 0,
      End: 1,
    };
    const place = to[event.key];
    if (place === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.point(Math.min(1, Math.max(0, place)));
    this.say([this.a, this.b].map((chart) => chart.describe(this.cursor ?? 0)).join('; '));
  }
}

function headOf(letter: 'A' | 'B', name: string, { record }: Side): Node[] {
  const place = shorten(peakPlace(record), 60);
  const kind = record.is_predicted ? 'predicted peak' : 'peak';
  return [
    h('i', { class: 'wv-letter', 'aria-hidden': 'true' }, letter),
    h('b', { title: shorten(name, 300) }, shorten(name, 80)),
    h('span', {}, `${kind} ${formatBytes(record.peak_bytes)}${place && ` in ${place}`}`),
  ];
}

function alignment({ paired, a, b }: Pair): string {
  const events = [a, b].map(({ record }) => formatCount(record.event_time_us.length));
  const counts = `${events[0]} events in A, ${events[1]} in B`;
  if (paired > 0) return `Same scale; phases that both have are aligned. ${counts}.`;
  return `One scale; both from first to last event. ${counts}.`;
}
