import { s } from './dom';

/** Shapes on a 16 x 16 grid, filled with the colour of the text around them. */
const SHAPES = {
  ascending: ['M3.500 10.500 8 6l4.500 4.500z'],
  attach: [
    'M5 2h1.5v3h3V2H11v3h1.5v3A4.5 4.5 0 0 1 8.75 12.4V15h-1.5v-2.6A4.5 4.5 0 0 1 3.5 8V5H5zm0 4.5V8a3 3 0 0 0 6 0V6.5z',
  ],
  blocked: [
    'M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM4.3 5.4a4.9 4.9 0 0 0 6.3 6.3zm1.1-1.1 6.3 6.3a4.9 4.9 0 0 0-6.3-6.3z',
  ],
  camera: [
    'M5.5 3h5l1 1.5H14v9H2v-9h2.5zM8 6a2.75 2.75 0 1 0 0 5.5A2.75 2.75 0 0 0 8 6zm0 1.3a1.45 1.45 0 1 1 0 2.9 1.45 1.45 0 0 1 0-2.9z',
  ],
  chevron: ['m3.2 5.4 4.8 4.8 4.8-4.8 1.1 1.1L8 12.4 2.1 6.5z'],
  copy: [
    'M10.5 1.5h-7A1.5 1.5 0 0 0 2 3v8h1.4V2.9h7.1z',
    'M12.5 4.2h-6A1.5 1.5 0 0 0 5 5.7v7.3a1.5 1.5 0 0 0 1.5 1.5h6A1.5 1.5 0 0 0 14 13V5.7a1.5 1.5 0 0 0-1.5-1.5zm-6.1 8.9V5.6h6.2v7.5z',
  ],
  dash: ['M3 7.2h10v1.6H3z'],
  diff: ['M1.5 3H7v10H1.5zm1.3 1.3v7.4h2.9V4.300z', 'M9 3h5.5v10H9z'],
  down: ['M8 13.5 13 8H9.7V2.5H6.3V8H3z'],
  error: [
    'M8 1.2a6.8 6.8 0 1 1 0 13.6A6.8 6.8 0 0 1 8 1.2zM5.7 4.6 4.6 5.7 6.9 8l-2.3 2.3 1.1 1.1L8 9.1l2.3 2.3 1.1-1.1L9.1 8l2.3-2.3-1.1-1.1L8 6.9z',
  ],
  external: [
    'M3 4.5h4.5V6H4.5v5.5H10V8.5h1.5V13H3z',
    'M8.5 3H13v4.5h-1.5V5.55L7.8 9.3 6.7 8.2l3.75-3.7H8.5z',
  ],
  goto: [
    'M2 3h9v1.5H2zM2 7.2h5.5v1.5H2zM2 11.5h4V13H2z',
    'M14 9.2v2.3H9.9v2L6.7 10.8l3.2-2.7v2h2.6v-.9z',
  ],
  graph: [
    'M4.6 6.9 11 4l.6 1.3-6.4 2.9zM5.2 7.8l6.4 2.9-.6 1.3-6.4-2.9z',
    'M1.25 8a2.25 2.25 0 1 0 4.5 0a2.25 2.25 0 1 0 -4.5 0z',
    'M10.25 4a2.25 2.25 0 1 0 4.5 0a2.25 2.25 0 1 0 -4.5 0z',
    'M10.25 12a2.25 2.25 0 1 0 4.5 0a2.25 2.25 0 1 0 -4.5 0z',
  ],
  info: [
    'M8 1.2a6.8 6.8 0 1 1 0 13.6A6.8 6.8 0 0 1 8 1.2zm0 1.3a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zm-.75 4.6h1.5v4.4h-1.5zm0-2.4h1.5v1.5h-1.5z',
  ],
  memory: [
    'M1 13.5V10l3.5-2.2 3 1.2L11 5.5l4 3v5z',
    'm1.4 7-.8-1.2L4.3 3l3.2 1.3L11 1.2l4 2.6-.8 1.2-3.1-2-3.3 2.9-3.1-1.2z',
  ],
  pause: ['M4 3h3v10H4zM9 3h3v10H9z'],
  resume: [
    'M8.4 2a6 6 0 0 1 0 12 6 6 0 0 1-5.1-2.8l1.3-.8a4.5 4.5 0 1 0-.6-3.7h1.8L3 9.4.2 6.7h2.3A6 6 0 0 1 8.4 2z',
    'M7 5.4v5.2L11 8z',
  ],
  ring: ['M8 1.5A6.5 6.5 0 1 1 1.5 8H3a5 5 0 1 0 5-5z'],
  step: ['M3 3v10l7-5zM11 3h2v10h-2z'],
  stop: ['M3.5 3.5h9v9h-9z'],
  tensorboard: ['M2 12.5h12V14H2zM3 8h2.5v4H3zM6.75 5h2.5v7h-2.5zM10.5 2H13v10h-2.5z'],
  tick: ['m6.4 12.4-4-4 1.2-1.2 2.8 2.8 6-6 1.2 1.2z'],
  train: ['M4.5 2.6v10.8L13 8z'],
  up: ['M8 2.5 13 8h-3.3v5.5H6.3V8H3z'],
  warning: ['M8 1.2 15.4 14H.6zM7.2 5.6v4.2h1.6V5.6zm0 5.3v1.6h1.6v-1.6z'],
  clock: [
    'M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zm0 1.4a5.1 5.1 0 1 0 0 10.2A5.1 5.1 0 0 0 8 2.9zM7.3 4.6h1.4v3.1l2.3 1.4-.7 1.2-3-1.8z',
  ],
  close: [
    'm4.3 3.2 3.700 3.700 3.700-3.700 1.100 1.100L9.100 8l3.700 3.700-1.100 1.100L8 9.100l-3.700 3.700-1.100-1.100L6.900 8 3.200 4.300z',
  ],
  table: [
    'M2 3h12v10H2zM3.400 6.700v1.600h3.200V6.700zm4.600 0v1.600h4.600V6.700zM3.400 9.700v1.900h3.200V9.700zm4.600 0v1.900h4.600V9.700z',
  ],
} as const;

export type IconName = keyof typeof SHAPES;

/** An icon that is decoration: the word beside it, or the button's label, says what it means. */
export function icon(name: IconName, size: 12 | 16 = 16): SVGSVGElement {
  const shapes = SHAPES[name].map((d) => s('path', { d, 'fill-rule': 'evenodd' }));
  const drawing = name === 'ring' ? [s('g', { class: 'spin' }, ...shapes)] : shapes;
  const classes = size === 12 ? 'i s12' : 'i';
  const frame = { class: classes, viewBox: '0 0 16 16', 'aria-hidden': 'true' };
  return s('svg', frame, ...drawing);
}
