/** Which colour an operation gets, and what the legend says about it. */
import { formatBytes } from './format';
import type { Operation } from './operations';
import type { GraphState } from './state';
import type { Palette } from './theme';

/** Fill and text colour; a plain surface for what has nothing to show. */
export function fillOf(
  operation: Operation,
  state: GraphState,
  palette: Palette,
): { fill: string; ink: string; ink2: string } {
  const plain = { fill: palette.raise, ink: palette.ink, ink2: palette.ink2 };
  if (state.colouring === 'bytes') {
    const step = stepOf(operation.saved, state.mostSaved);
    if (step < 0) return plain;
    const ink = palette.scaleInk[step] ?? palette.ink;
    return { fill: palette.scale[step] ?? palette.raise, ink, ink2: ink };
  }
  if (state.colouring === 'dtype') {
    const swatch = dtypeSwatch(operation.dtype, state, palette);
    return swatch ? { fill: swatch.fill, ink: swatch.ink, ink2: swatch.ink } : plain;
  }
  return plain;
}

/** Step of the square-root scale, 0 to 8; -1 for nothing. */
export function stepOf(bytes: number, most: number): number {
  if (bytes <= 0 || most <= 0) return -1;
  return Math.min(8, Math.floor(Math.sqrt(bytes / most) * 9));
}

const SWATCHES = ['buffers', 'temporaries', 'activations', 'optimizer', 'gradients', 'parameters'];

/** The colour of an element type; float32, the default, stays plain. */
export function dtypeSwatch(
  dtype: string,
  state: GraphState,
  palette: Palette,
): { fill: string; ink: string } | null {
  const others = state.dtypes.filter((name) => name !== 'float32');
  const index = others.indexOf(dtype);
  return index < 0 ? null : (palette.categories[SWATCHES[index % SWATCHES.length] ?? ''] ?? null);
}

/** Values at the four ticks of the byte scale. */
export function scaleTicks(most: number): string[] {
  return [0, 1 / 3, 2 / 3, 1].map((part) => formatBytes(most * part * part));
}
