/** A pen that writes SVG: the part of a canvas that the drawing uses, each call as an element. */
import type { Pen } from './pen';
import { escape, num, precise } from './picture-xml';

/** Measures text and reads colours; a canvas of the page's does both. */
export type Probe = Pick<
  CanvasRenderingContext2D,
  'fillStyle' | 'font' | 'measureText' | 'textBaseline'
>;

export interface Sheet {
  width: number;
  height: number;
  /** Read by a screen reader, and shown when pointed at. */
  title: string;
}

const ANCHORS: Partial<Record<CanvasTextAlign, string>> = { center: 'middle', right: 'end' };

export class SvgPen implements Pen {
  fillStyle: Pen['fillStyle'] = '#000';
  strokeStyle: Pen['strokeStyle'] = '#000';
  lineWidth = 1;
  globalAlpha = 1;
  font = '10px sans-serif';
  textAlign: CanvasTextAlign = 'left';
  textBaseline: CanvasTextBaseline = 'alphabetic';
  #path: string[] = [];
  /** Where the path has come to. */
  #at: [number, number] = [0, 0];
  #dash: readonly number[] = [];
  readonly #parts: string[] = [];
  readonly #defs: string[] = [];
  readonly #patterns = new Map<unknown, string>();
  readonly #colours = new Map<string, [string, number]>();
  readonly #shifts = new Map<string, number>();

  constructor(
    private readonly sheet: Sheet,
    private readonly probe: Probe,
  ) {}

  /** All of it as one well-formed document. */
  document(): string {
    const { width, height, title } = this.sheet;
    const size = `width="${num(width)}" height="${num(height)}"`;
    return [
      '<?xml version="1.0" encoding="UTF-8"?>',
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="0 0 ${num(width)} ${num(height)}">`,
      `<title>${escape(title)}</title>`,
      `<defs>${this.#defs.join('')}</defs>`,
      '<g>',
      ...this.#parts,
      '</g>',
      '</svg>\n',
    ].join('\n');
  }

  setTransform(...given: (number | DOMMatrix2DInit | undefined)[]): void {
    const [first] = given;
    const { a = 1, b = 0, c = 0, d = 1, e = 0, f = 0 } = typeof first === 'object' ? first : {};
    const matrix = typeof first === 'number' ? (given as number[]) : [a, b, c, d, e, f];
    this.#parts.push(`</g><g transform="matrix(${matrix.map(precise).join(' ')})">`);
  }

  setLineDash(segments: Iterable<number>): void {
    this.#dash = [...segments];
  }

  beginPath(): void {
    this.#path = [];
  }

  moveTo(x: number, y: number): void {
    this.#go(`M${num(x)} ${num(y)}`, x, y);
  }

  lineTo(x: number, y: number): void {
    this.#go(`L${num(x)} ${num(y)}`, x, y);
  }

  bezierCurveTo(x1: number, y1: number, x2: number, y2: number, x: number, y: number): void {
    this.#go(`C${[x1, y1, x2, y2, x, y].map(num).join(' ')}`, x, y);
  }

  /** A corner at the first point, rounded, as far as the second is in another direction. */
  arcTo(cornerX: number, cornerY: number, x: number, y: number, radius: number): void {
    const [backX, backY, back] = direction(cornerX, cornerY, ...this.#at);
    const [onX, onY, on] = direction(cornerX, cornerY, x, y);
    const cross = backX * onY - backY * onX;
    if (radius <= 0 || back === 0 || on === 0 || Math.abs(cross) < 1e-9) {
      this.lineTo(cornerX, cornerY);
      return;
    }
    const cut = (radius * (1 + backX * onX + backY * onY)) / Math.abs(cross);
    this.lineTo(cornerX + backX * cut, cornerY + backY * cut);
    this.#arc(radius, false, cross < 0, cornerX + onX * cut, cornerY + onY * cut);
  }

  arc(x: number, y: number, radius: number, from: number, to: number): void {
    const point = (angle: number): [number, number] => [
      x + radius * Math.cos(angle),
      y + radius * Math.sin(angle),
    ];
    const start = point(from);
    if (this.#path.length > 0) this.lineTo(...start);
    else this.moveTo(...start);
    if (to - from < 2 * Math.PI) {
      this.#arc(radius, to - from > Math.PI, true, ...point(to));
      return;
    }
    // One arc cannot end where it begins.
    this.#arc(radius, false, true, ...point(from + Math.PI));
    this.#arc(radius, false, true, ...start);
  }

  roundRect(x: number, y: number, width: number, height: number, radii?: unknown): void {
    const radius = Number(radii ?? 0);
    const [right, bottom] = [x + width, y + height];
    this.moveTo(x + radius, y);
    this.lineTo(right - radius, y);
    if (radius > 0) this.#arc(radius, false, true, right, y + radius);
    this.lineTo(right, bottom - radius);
    if (radius > 0) this.#arc(radius, false, true, right - radius, bottom);
    this.lineTo(x + radius, bottom);
    if (radius > 0) this.#arc(radius, false, true, x, bottom - radius);
    this.lineTo(x, y + radius);
    if (radius > 0) this.#arc(radius, false, true, x + radius, y);
    this.#path.push('Z');
  }

  fill(): void {
    this.#element(`path d="${this.#path.join('')}"`, this.#paint('fill', this.fillStyle));
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    const place = `x="${num(x)}" y="${num(y)}" width="${num(width)}" height="${num(height)}"`;
    this.#element(`rect ${place}`, this.#paint('fill', this.fillStyle));
  }

  stroke(): void {
    const width = this.lineWidth === 1 ? '' : ` stroke-width="${num(this.lineWidth)}"`;
    const dash =
      this.#dash.length > 0 ? ` stroke-dasharray="${this.#dash.map(num).join(' ')}"` : '';
    const paint = this.#paint('stroke', this.strokeStyle);
    this.#element(`path d="${this.#path.join('')}" fill="none"`, `${paint}${width}${dash}`);
  }

  fillText(text: string, x: number, y: number): void {
    if (text === '') return;
    const [, weight = '', size = '10', family = ''] =
      /^(?:(\d+|bold) )?([\d.e-]+)px (.*)$/.exec(this.font) ?? [];
    const anchor = ANCHORS[this.textAlign];
    const attributes = [
      `x="${num(x)}" y="${num(y + this.#shift(Number(size)))}"`,
      `font-family="${escape(family)}" font-size="${num(Number(size))}"`,
      weight && weight !== '400' ? `font-weight="${weight}"` : '',
      anchor ? `text-anchor="${anchor}"` : '',
      // What is drawn beside it was placed by this width; another font must not run into it.
      `textLength="${num(this.measureText(text).width)}"`,
    ].filter(Boolean);
    const paint = this.#paint('fill', this.fillStyle);
    this.#parts.push(`<text ${attributes.join(' ')} ${paint}>${escape(text)}</text>`);
  }

  measureText(text: string): TextMetrics {
    this.probe.font = this.font;
    return this.probe.measureText(text);
  }

  /** A pattern is a small canvas; it goes into the document with it. */
  createPattern(image: CanvasImageSource): CanvasPattern | null {
    if (!(image instanceof HTMLCanvasElement)) return null;
    const id = `pattern${this.#patterns.size + 1}`;
    const size = `width="${image.width}" height="${image.height}"`;
    const tile = `<image ${size} href="${escape(image.toDataURL())}"/>`;
    this.#defs.push(`<pattern id="${id}" patternUnits="userSpaceOnUse" ${size}>${tile}</pattern>`);
    const pattern: CanvasPattern = { setTransform: () => undefined };
    this.#patterns.set(pattern, id);
    return pattern;
  }

  #go(command: string, x: number, y: number): void {
    this.#path.push(command);
    this.#at = [x, y];
  }

  #arc(radius: number, large: boolean, clockwise: boolean, x: number, y: number): void {
    const flags = `${Number(large)} ${Number(clockwise)}`;
    this.#go(`A${num(radius)} ${num(radius)} 0 ${flags} ${num(x)} ${num(y)}`, x, y);
  }

  #element(shape: string, paint: string): void {
    this.#parts.push(`<${shape} ${paint}/>`);
  }

  /** `fill="#aabbcc" fill-opacity="0.5"`: colours with a fourth part are not read everywhere. */
  #paint(kind: 'fill' | 'stroke', style: Pen['fillStyle']): string {
    const id = this.#patterns.get(style);
    const [colour, own] = id ? [`url(#${id})`, 1] : this.#colour(String(style));
    const opacity = own * this.globalAlpha;
    return `${kind}="${escape(colour)}"${opacity < 1 ? ` ${kind}-opacity="${precise(opacity)}"` : ''}`;
  }

  /** A colour of the page's, whatever way it is written there, as six digits and an opacity. */
  #colour(style: string): [string, number] {
    const known = this.#colours.get(style);
    if (known) return known;
    this.probe.fillStyle = '#000';
    this.probe.fillStyle = style;
    const read = String(this.probe.fillStyle);
    const parts = /^rgba\((\d+), (\d+), (\d+), ([\d.e-]+)\)$/.exec(read);
    const hex = parts?.slice(1, 4).map((part) => Number(part).toString(16).padStart(2, '0'));
    const colour: [string, number] = hex ? [`#${hex.join('')}`, Number(parts?.[4])] : [read, 1];
    this.#colours.set(style, colour);
    return colour;
  }

  /** From the line that text stands at to its baseline: few programs read `dominant-baseline`. */
  #shift(size: number): number {
    const key = `${this.textBaseline} ${this.font}`;
    const known = this.#shifts.get(key);
    if (known !== undefined) return known;
    const ascent = (baseline: CanvasTextBaseline): number => {
      this.probe.font = this.font;
      this.probe.textBaseline = baseline;
      return this.probe.measureText('x').fontBoundingBoxAscent;
    };
    const measured = ascent('alphabetic') - ascent(this.textBaseline);
    const guess = this.textBaseline === 'middle' ? 0.35 * size : 0;
    const shift = Number.isFinite(measured) ? measured : guess;
    this.#shifts.set(key, shift);
    return shift;
  }
}

/** Unit vector from one point to another, and their distance. */
function direction(x: number, y: number, toX: number, toY: number): [number, number, number] {
  const length = Math.hypot(toX - x, toY - y);
  return length > 0 ? [(toX - x) / length, (toY - y) / length, length] : [0, 0, 0];
}
