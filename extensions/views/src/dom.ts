/**
 * Building and patching the page. Text reaches it through `textContent` alone, and a patch that
 * changes nothing touches nothing: figures that move ten times a second must not cost focus,
 * selection or layout.
 */
import type { Dispose, Store } from './store';

export type Attrs = Readonly<Record<string, string | number | boolean | null | EventListener>>;
export type Child = Node | string | null;

/**
 * An element. Attributes that are functions become listeners (`onclick`); null ones are left out. A
 * text in their place is the class.
 */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attrs: Attrs | string = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const all = typeof attrs === 'string' ? { class: attrs } : attrs;
  return fill(document.createElement(tag), all, children);
}

/** The same for SVG. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attrs: Attrs = {},
  ...children: readonly Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attrs, children);
}

function fill<E extends Element>(el: E, attrs: Attrs, children: readonly Child[]): E {
  for (const [name, value] of Object.entries(attrs)) {
    if (typeof value === 'function') el.addEventListener(name.replace(/^on/, ''), value);
    else setAttr(el, name, value);
  }
  for (const child of children) if (child !== null) el.append(child);
  return el;
}

/** Sets, or with null or false removes, an attribute; `aria-*` keep their "false". */
export function setAttr(
  el: Element,
  name: string,
  value: string | number | boolean | null | undefined,
): void {
  const gone = value === null || value === undefined || (value === false && !/^aria-/.test(name));
  if (gone) {
    if (el.hasAttribute(name)) el.removeAttribute(name);
    return;
  }
  const text = value === true && !/^aria-/.test(name) ? '' : String(value);
  if (el.getAttribute(name) !== text) el.setAttribute(name, text);
}

/** Replaces the text of an element that holds nothing else. */
export function setText(el: Element, text: string): void {
  if (el.textContent !== text) el.textContent = text;
}

/** Shows or hides without rebuilding. */
export function setShown(el: HTMLElement | SVGElement, shown: boolean): void {
  setAttr(el, 'hidden', !shown);
}

/** Adds or removes one class. */
export function setClass(el: Element, name: string, on: boolean): void {
  if (el.classList.contains(name) !== on) el.classList.toggle(name, on);
}

let ids = 0;

/** An id that is unique in the page, for aria references and SVG patterns. */
export function uniqueId(prefix: string): string {
  ids += 1;
  return `wb-${prefix}-${ids}`;
}

export interface PerFrame {
  request: () => void;
  /** Draws at once what was requested and is not drawn yet. */
  now: () => void;
  cancel: () => void;
}

/** Calls `draw` once per frame, however often it is requested; `cancel` ends it. */
export function perFrame(draw: () => void): PerFrame {
  let frame = 0;
  const cancel = (): void => {
    cancelAnimationFrame(frame);
    frame = 0;
  };
  return {
    request: () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        draw();
      });
    },
    now: () => {
      if (frame === 0) return;
      cancel();
      draw();
    },
    cancel,
  };
}

/**
 * Draws at once and after every change of a store, once per frame; with a `period` also each time
 * that so many milliseconds have passed. With an `element` nothing is drawn while that is out of
 * sight, scrolled away or in a tab behind: what was missed is drawn when it comes back. The returned
 * function ends it.
 */
export function drawOn(
  store: Pick<Store<unknown, never>, 'subscribe'>,
  draw: () => void,
  { period, element }: { period?: number; element?: Element } = {},
): Dispose {
  let inSight = true;
  let missed = false;
  const frames = perFrame(() => {
    missed = !inSight;
    if (inSight) draw();
  });
  const sight =
    element &&
    watchInSight(element, (now) => {
      inSight = now;
      if (inSight && missed) frames.request();
    });
  const timer = period === undefined ? undefined : setInterval(frames.request, period);
  const unsubscribe = store.subscribe(frames.request);
  draw();
  return () => {
    sight?.();
    unsubscribe();
    frames.cancel();
    clearInterval(timer);
  };
}

/** Says when any part of the element comes into sight, and when none is left there. */
function watchInSight(element: Element, onSight: (inSight: boolean) => void): Dispose {
  if (typeof IntersectionObserver !== 'function') return () => {};
  const observer = new IntersectionObserver((entries) => {
    onSight(entries.at(-1)?.isIntersecting ?? true);
  });
  observer.observe(element);
  return () => observer.disconnect();
}

/** Calls `onSize` when one of the elements gets another size; the returned function ends it. */
export function watchSize(onSize: () => void, ...elements: readonly Element[]): Dispose {
  if (typeof ResizeObserver !== 'function') return () => {};
  const observer = new ResizeObserver(onSize);
  for (const element of elements) observer.observe(element);
  return () => observer.disconnect();
}
