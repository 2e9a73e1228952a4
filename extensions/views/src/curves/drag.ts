import { s, setAttr, setShown } from '../dom';

/** Pixels within which a press is no drag. */
const STILL = 4;

/**
 * Lets a person mark a range of a plot by dragging across it, and take all of it back by a double
 * click. A finger scrolls the page instead.
 */
export function dragAcross(
  svg: SVGSVGElement,
  chosen: (from: number, to: number) => void,
  reset: () => void,
): void {
  const box = s('rect', { class: 'chosen', y: 0 });
  setShown(box, false);
  svg.append(box);
  let begun: number | null = null;
  const at = (event: PointerEvent): number => event.clientX - svg.getBoundingClientRect().left;
  const end = (): void => {
    begun = null;
    setShown(box, false);
  };
  svg.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 || event.pointerType === 'touch') return;
    begun = at(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener('pointermove', (event) => {
    if (begun === null) return;
    const now = at(event);
    setShown(box, Math.abs(now - begun) >= STILL);
    setAttr(box, 'x', Math.min(begun, now));
    setAttr(box, 'width', Math.abs(now - begun));
    setAttr(box, 'height', svg.clientHeight);
  });
  svg.addEventListener('pointerup', (event) => {
    const from = begun;
    end();
    if (from !== null && Math.abs(at(event) - from) >= STILL) chosen(from, at(event));
  });
  svg.addEventListener('pointercancel', end);
  svg.addEventListener('dblclick', reset);
}
