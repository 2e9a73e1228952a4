import { describe, expect, it } from 'vitest';
import { paint } from '../src/graph/paint';
import { SvgPen, type Probe } from '../src/graph/picture-svg';
import { GraphState } from '../src/graph/state';
import { Camera } from '../src/graph/camera';
import type { Palette } from '../src/graph/theme';
import { graphOf, residual } from './graph-data';

/** Reads colours as a canvas does and measures every letter as 6 pixels wide: jsdom has no canvas. */
class FakeProbe implements Probe {
  font = '';
  textBaseline: CanvasTextBaseline = 'alphabetic';
  #fill = '#000000';

  get fillStyle(): string {
    return this.#fill;
  }

  set fillStyle(given: string) {
    const [, r, g, b, a] = /^rgba\((\d+),(\d+),(\d+),([\d.]+)\)$/.exec(given) ?? [];
    this.#fill = a === undefined ? given : `rgba(${r}, ${g}, ${b}, ${a})`;
  }

  measureText(text: string): TextMetrics {
    const ascent = this.textBaseline === 'middle' ? 5 : 9;
    return { width: text.length * 6, fontBoundingBoxAscent: ascent } as TextMetrics;
  }
}

function sheet(title = 'one'): SvgPen {
  return new SvgPen({ width: 200, height: 100, title }, new FakeProbe());
}

function parse(text: string): Document {
  const parsed = new DOMParser().parseFromString(text, 'image/svg+xml');
  expect(parsed.querySelector('parsererror')?.textContent ?? '').toBe('');
  return parsed;
}

function attributes(pen: SvgPen, selector: string): Record<string, string> {
  const found = parse(pen.document()).querySelector(selector);
  return Object.fromEntries([...(found?.attributes ?? [])].map((one) => [one.name, one.value]));
}

describe('the pen that writes SVG', () => {
  it('is a sheet of the requested size, with its title', () => {
    const { documentElement } = parse(sheet('<b> & "c"').document());
    expect(documentElement.getAttribute('viewBox')).toBe('0 0 200 100');
    expect(documentElement.querySelector('title')?.textContent).toBe('<b> & "c"');
  });

  it('rounds a corner between two lines, to the right and to the left', () => {
    const pen = sheet();
    pen.beginPath();
    pen.moveTo(0, 0);
    pen.arcTo(10, 0, 10, 10, 4);
    pen.arcTo(10, 10, 20, 10, 4);
    pen.lineTo(20, 10);
    pen.stroke();
    const expected = 'M0 0L6 0A4 4 0 0 1 10 4L10 6A4 4 0 0 0 14 10L20 10';
    expect(attributes(pen, 'path')).toMatchObject({ d: expected, fill: 'none', stroke: '#000' });
  });

  it('goes straight where a corner has no room or no angle', () => {
    const pen = sheet();
    pen.beginPath();
    pen.moveTo(0, 0);
    pen.arcTo(5, 0, 10, 0, 4);
    pen.arcTo(10, 0, 10, 10, 0);
    pen.arcTo(10, 0, 10, 10, 3);
    pen.stroke();
    expect(attributes(pen, 'path')['d']).toBe('M0 0L5 0L10 0L10 0');
  });

  it('draws a whole circle, and a rounded and a plain rectangle', () => {
    const pen = sheet();
    pen.beginPath();
    pen.arc(10, 10, 5, 0, 7);
    pen.fill();
    expect(attributes(pen, 'path')['d']).toBe('M15 10A5 5 0 0 1 5 10A5 5 0 0 1 15 10');
    const box = sheet();
    box.beginPath();
    box.roundRect(0, 0, 20, 10, 2);
    box.roundRect(30, 0, 20, 10, 0);
    box.fill();
    const d = attributes(box, 'path')['d'] ?? '';
    expect(d.match(/A2 2/g)).toHaveLength(4);
    expect(d).toContain('M30 0L50 0L50 10L30 10L30 0Z');
  });

  it('keeps transforms, dashes, widths and what shines through', () => {
    const pen = sheet();
    pen.setTransform(2, 0, 0, 2, -10, 5);
    pen.globalAlpha = 0.5;
    pen.strokeStyle = 'rgba(0,0,0,0.5)';
    pen.lineWidth = 2.5;
    pen.setLineDash([5, 3]);
    pen.beginPath();
    pen.moveTo(0, 0);
    pen.lineTo(1, 1);
    pen.stroke();
    expect(attributes(pen, 'path')).toMatchObject({
      stroke: '#000000',
      'stroke-opacity': '0.25',
      'stroke-width': '2.5',
      'stroke-dasharray': '5 3',
    });
    expect(attributes(pen, 'g[transform]')['transform']).toBe('matrix(2 0 0 2 -10 5)');
  });

  it('writes text as text: at its baseline, in its font, whatever stands in it', () => {
    const pen = sheet();
    pen.font = `600 12px 'My Font', sans-serif`;
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    pen.fillText('a<b>&"\u0000\uD800😀', 10, 20);
    pen.fillText('', 0, 0);
    const texts = parse(pen.document()).querySelectorAll('text');
    expect(texts).toHaveLength(1);
    expect(texts[0]?.textContent).toBe('a<b>&"��😀');
    expect(attributes(pen, 'text')).toMatchObject({
      x: '10',
      y: '24',
      'font-size': '12',
      'font-weight': '600',
      'font-family': `'My Font', sans-serif`,
      'text-anchor': 'end',
    });
  });
});

describe('a drawing as SVG', () => {
  it('holds what the canvas would show, whatever its names are', () => {
    const hostile = residual(4).map((one) => ({ ...one, op: `<script>${one.op}&\u0007` }));
    const state = new GraphState(graphOf(hostile, '"]]><script>'));
    const camera = Object.assign(new Camera(), { width: 900, height: 700 });
    camera.open(state.layout.root, state.layout.root.axis);
    const pen = sheet();
    const count = paint(pen, camera, palette(), state, null, 1);
    const texts = [...parse(pen.document()).querySelectorAll('text')].map((one) => one.textContent);
    expect(count).toBeGreaterThan(3);
    expect(texts.some((text) => text?.startsWith('<script>'))).toBe(true);
    expect(pen.document()).not.toContain('<script');
  });
});

function palette(): Palette {
  const plain = new Proxy(
    { scale: Array(9).fill('#abc'), scaleInk: Array(9).fill('#111'), level: ['#eee', '#ddd'] },
    {
      get(known: Record<string, unknown>, name) {
        if (name === 'categories') return {};
        return known[String(name)] ?? (name === 'font' ? 'sans-serif' : '#123456');
      },
    },
  );
  return plain as unknown as Palette;
}
