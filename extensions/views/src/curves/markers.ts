import type { Marker } from '@torch-workbench/records';
import { count, oneLine } from '../format';
import { fitted } from './text';

/** Where a marker's label goes: beside its line, left or right of it; null when it has no room. */
export interface PlacedMarker {
  readonly x: number;
  readonly title: string;
  readonly label: { readonly text: string; readonly x: number; readonly anchor: Anchor } | null;
  readonly newest: boolean;
  /** Another marker's label covers the upper end of this line, which must stay clear of it. */
  readonly covered: boolean;
}

type Anchor = 'start' | 'end';

const GAP = 4;
const MAX_LABEL = 160;
/** A label cut off to less than this says nothing that its line's tooltip does not say better. */
const MIN_CUT_OFF = 48;

export interface MarkerSpace {
  readonly left: number;
  readonly right: number;
  readonly x: (step: number) => number;
  readonly measure: (text: string, bold: boolean) => number;
}

/**
 * Places the labels of the markers in the strip above a plot. The newest is placed first and always
 * kept if it fits; one that would touch another label is left out, and its text stays in the
 * tooltip of its line.
 */
export function placeMarkers(markers: readonly Marker[], space: MarkerSpace): PlacedMarker[] {
  const taken: [number, number][] = [];
  const owners: number[] = [];
  const lines = markers.map((marker) => Math.round(space.x(marker.step)) + 0.5);
  const placed: PlacedMarker[] = [];
  for (let i = markers.length - 1; i >= 0; i -= 1) {
    const marker = markers[i] as Marker;
    const x = lines[i] as number;
    const newest = i === markers.length - 1;
    const label = placeLabel(oneLine(marker.text), x, newest, space, taken);
    while (owners.length < taken.length) owners.push(i);
    placed.unshift({
      x,
      title: `step ${count(marker.step)}: ${oneLine(marker.text, 400)}`,
      label,
      newest,
      covered: false,
    });
  }
  return placed.map((one, i) => ({
    ...one,
    covered: taken.some(([a, b], of) => owners[of] !== i && a < one.x && one.x < b),
  }));
}

function placeLabel(
  text: string,
  x: number,
  newest: boolean,
  space: MarkerSpace,
  taken: [number, number][],
): PlacedMarker['label'] {
  const measure = (one: string): number => space.measure(one, newest);
  const full = Math.min(MAX_LABEL, measure(text));
  const sides: Anchor[] = x + GAP + full <= space.right ? ['start', 'end'] : ['end', 'start'];
  for (const anchor of sides) {
    const room = anchor === 'start' ? space.right - x - GAP : x - GAP - space.left;
    const shown = fitted(text, Math.min(MAX_LABEL, room), measure);
    if (shown === null) continue;
    const width = measure(shown);
    if (shown !== text && width < MIN_CUT_OFF) continue;
    const from = anchor === 'start' ? x + GAP : x - GAP - width;
    if (taken.some(([a, b]) => from < b + GAP && from + width > a - GAP)) continue;
    taken.push([from, from + width], [x, x]);
    return { text: shown, x: anchor === 'start' ? x + GAP : x - GAP, anchor };
  }
  return null;
}
