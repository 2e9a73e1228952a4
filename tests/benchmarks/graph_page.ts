/**
 * The graph view alone on a page that measures itself: `window.graphPage` opens a record's bytes and
 * says how long it took until the canvas showed it, and pans as fast as frames come.
 *
 * Bundled and driven by `graph_browser.py`.
 */
import { GRAPH_RECORD, readRecordAs, type GraphRecord } from '@torch-workbench/records';
import { mount } from '@torch-workbench/views/graph';

interface Opened {
  /** Milliseconds from bytes in the page to the record, to the mounted view, and to pixels. */
  read: number;
  mounted: number;
  pixels: number;
  /** Longest the page did not answer in that time. */
  blocked: number;
  error: string | null;
}

interface Panned {
  /** Milliseconds between one frame and the next. */
  frames: number[];
  /** Whether the picture at the end is another than at the start. */
  moved: boolean;
}

const PATIENCE_MS = 300_000;
const DRAWINGS = 5;
const host = document.querySelector<HTMLElement>('#host') as HTMLElement;
let dispose: () => void = () => undefined;

async function open(url: string): Promise<Opened> {
  dispose();
  const bytes = await (await fetch(url)).arrayBuffer();
  await frame();
  const watch = watchAnswers();
  const start = performance.now();
  const since = (): number => performance.now() - start;
  let record: GraphRecord | null = null;
  let error: string | null = null;
  try {
    record = readRecordAs(GRAPH_RECORD, bytes);
  } catch (reason) {
    error = reason instanceof Error ? reason.message : String(reason);
  }
  const read = since();
  const state = { record, error };
  dispose = mount(host, {
    get: () => state,
    subscribe: () => () => undefined,
    send: () => Promise.resolve(),
  });
  const mounted = since();
  error ??= shownError();
  while (!error && isBlank() && since() < PATIENCE_MS) {
    await frame();
    error = shownError();
  }
  const pixels = since();
  return { read, mounted, pixels, blocked: await watch(), error };
}

/** Wheels over the canvas, once it was pressed into, once a frame, back and forth. */
async function pan(seconds: number): Promise<Panned> {
  const canvas = drawing() as HTMLCanvasElement;
  canvas.focus();
  const before = canvas.toDataURL();
  const frames: number[] = [];
  let last = await frame();
  const end = last + seconds * 1000;
  for (let turn = 0; last < end; turn += 1) {
    const deltaY = turn % 60 < 40 ? 60 : -60;
    canvas.dispatchEvent(new WheelEvent('wheel', { deltaY, bubbles: true, cancelable: true }));
    const now = await frame();
    frames.push(now - last);
    last = now;
  }
  return { frames, moved: canvas.toDataURL() !== before };
}

/** Milliseconds in which so many boxes are drawn on a plain canvas and read back, on average. */
function drawPlainly(boxes: number): number {
  const context = plainCanvas();
  const start = performance.now();
  for (let turn = 0; turn < DRAWINGS; turn += 1) {
    drawBoxes(context, boxes, turn);
    context.getImageData(0, 0, context.canvas.width, context.canvas.height);
  }
  return (performance.now() - start) / DRAWINGS;
}

/** Milliseconds between frames while a plain canvas moves, in place of the view's. */
async function panPlainly(seconds: number, boxes: number): Promise<number[]> {
  const context = plainCanvas();
  Object.assign(context.canvas.style, { position: 'fixed', inset: '0' });
  document.body.append(context.canvas);
  const frames: number[] = [];
  let last = await frame();
  const end = last + seconds * 1000;
  for (let turn = 0; last < end; turn += 1) {
    drawBoxes(context, boxes, turn);
    const now = await frame();
    frames.push(now - last);
    last = now;
  }
  context.canvas.remove();
  return frames;
}

function plainCanvas(): CanvasRenderingContext2D {
  const canvas = document.createElement('canvas');
  canvas.width = innerWidth;
  canvas.height = innerHeight;
  return canvas.getContext('2d') as CanvasRenderingContext2D;
}

/** Boxes with a label each in rows that fill the canvas, and a curve from each to another. */
function drawBoxes(context: CanvasRenderingContext2D, boxes: number, shift: number): void {
  const { width, height } = context.canvas;
  const columns = Math.ceil(Math.sqrt(boxes));
  const place = (box: number): [number, number] => [
    shift + ((box % columns) * width) / columns,
    (Math.floor(box / columns) * height) / columns,
  ];
  context.clearRect(0, 0, width, height);
  context.font = '12px sans-serif';
  for (let box = 0; box < boxes; box += 1) {
    const [x, y] = place(box);
    context.fillStyle = '#ddd';
    context.fillRect(x, y, 40, 16);
    context.strokeRect(x, y, 40, 16);
    context.fillStyle = '#000';
    context.fillText(`node ${box}`, x, y + 12);
  }
  for (let box = 0; box < boxes; box += 1) {
    const [x, y] = place(box);
    const [toX, toY] = place((box * 7) % boxes);
    context.beginPath();
    context.moveTo(x, y);
    context.bezierCurveTo(x, toY, toX, y, toX, toY);
    context.stroke();
  }
}

const drawing = (): HTMLCanvasElement | null => host.querySelector('canvas.wv-surface');

const frame = (): Promise<number> => new Promise(requestAnimationFrame);

function shownError(): string | null {
  const message = host.querySelector<HTMLElement>('.wv-message');
  return message && !message.hidden ? message.textContent : null;
}

/** Reading the pixels back waits until they are painted. */
function isBlank(): boolean {
  const canvas = drawing();
  const context = canvas?.getContext('2d');
  if (!canvas || !context || canvas.width < 2) return true;
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const pixels = new Uint32Array(data.buffer);
  return pixels.every((pixel) => pixel === pixels[0]);
}

/** Longest pause between two turns of the event loop, until the returned function is called. */
function watchAnswers(): () => Promise<number> {
  const { port1, port2 } = new MessageChannel();
  let last = performance.now();
  let longest = 0;
  let done = false;
  const turn = (): void => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
    if (!done) port2.postMessage(null);
  };
  port1.onmessage = turn;
  port2.postMessage(null);
  return async () => {
    await frame();
    done = true;
    turn();
    return longest;
  };
}

Object.assign(window, { graphPage: { open, pan, drawPlainly, panPlainly } });
