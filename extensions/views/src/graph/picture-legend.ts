/**
 * The legend as part of a picture. It is a piece of the page; what it looks like is read off the
 * page and painted, so a picture says exactly what the screen says.
 */
import type { Pen } from './pen';
import { hatch } from './shade';
import type { Palette } from './theme';

const CLEAR = 'rgba(0, 0, 0, 0)';

interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Paints `legend` where it is over the drawing. */
export function paintLegend(pen: Pen, legend: HTMLElement, palette: Palette): void {
  const frame = (legend.parentElement ?? legend).getBoundingClientRect();
  const paint = (element: HTMLElement, outer: number): void => {
    const style = getComputedStyle(element);
    // In a picture there is nothing to open: the heading stands where its triangle was.
    const shift = outer + (element.tagName === 'SUMMARY' ? parseFloat(style.marginLeft) || 0 : 0);
    const placed = ({ left, top, width, height }: DOMRect): Place => {
      return { x: left - frame.left - shift, y: top - frame.top, width, height };
    };
    const place = placed(element.getBoundingClientRect());
    paintBox(pen, place, style);
    paintSign(pen, element, place, palette);
    for (const child of element.childNodes) {
      if (child instanceof HTMLElement) paint(child, shift);
      else if (child instanceof Text) paintText(pen, child, style, placed);
    }
  };
  paint(legend, 0);
}

/** Surface and border: a frame, or the one line that stands for an edge. */
function paintBox(pen: Pen, { x, y, width, height }: Place, style: CSSStyleDeclaration): void {
  const border = parseFloat(style.borderTopWidth) || 0;
  const framed = (parseFloat(style.borderBottomWidth) || 0) > 0;
  const inset = framed ? border / 2 : 0;
  const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, width / 2, height / 2);
  pen.beginPath();
  pen.roundRect(x + inset, y + inset, width - 2 * inset, height - 2 * inset, radius);
  if (style.backgroundColor !== CLEAR) {
    pen.fillStyle = style.backgroundColor;
    pen.fill();
  }
  if (border === 0 || style.borderTopStyle === 'none') return;
  pen.strokeStyle = style.borderTopColor;
  pen.lineWidth = border;
  if (!framed) {
    pen.beginPath();
    pen.moveTo(x, y + border / 2);
    pen.lineTo(x + width, y + border / 2);
  }
  if (style.borderTopStyle === 'dashed') pen.setLineDash([2 * border, border]);
  pen.stroke();
  pen.setLineDash([]);
}

/** What the stylesheet draws inside a key: a hatch, a parameter's dot, a sign. */
function paintSign(pen: Pen, element: HTMLElement, place: Place, palette: Palette): void {
  const { x, y, width, height } = place;
  if (element.classList.contains('hatched')) {
    pen.fillStyle = hatch(pen, palette.hatch);
    pen.fillRect(x + 1, y + 1, width - 2, height - 2);
  }
  if (element.classList.contains('chip')) {
    pen.fillStyle = palette.categories['parameters']?.fill ?? palette.ink;
    pen.beginPath();
    pen.arc(x + 8, y + height / 2, 3.5, 0, 7);
    pen.fill();
  }
  const style = getComputedStyle(element, '::before');
  const sign = /^"(.+)"$/.exec(style.content)?.[1];
  if (sign) write(pen, sign, x + width / 2, y + height / 2, 'center', style);
}

/** The lines of a text as the page broke them. */
function paintText(
  pen: Pen,
  text: Text,
  style: CSSStyleDeclaration,
  placed: (rect: DOMRect) => Place,
): void {
  let line: { words: string; place: Place } | null = null;
  const flush = (): void => {
    if (line) write(pen, line.words, line.place.x, middle(line.place), 'left', style);
  };
  for (const word of text.data.matchAll(/\S+/g)) {
    const range = document.createRange();
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    const place = placed(range.getBoundingClientRect());
    if (place.width === 0) continue;
    if (line && Math.abs(line.place.y - place.y) < 2) line.words += ` ${word[0]}`;
    else {
      flush();
      line = { words: word[0], place };
    }
  }
  flush();
}

function middle({ y, height }: Place): number {
  return y + height / 2;
}

function write(
  pen: Pen,
  text: string,
  x: number,
  y: number,
  align: CanvasTextAlign,
  style: CSSStyleDeclaration,
): void {
  pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  pen.fillStyle = style.color;
  pen.textAlign = align;
  pen.textBaseline = 'middle';
  pen.fillText(text, x, y);
}
