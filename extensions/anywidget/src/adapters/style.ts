/**
 * Adds a stylesheet to the document or shadow root that `el` is in, once per root and name.
 *
 * A widget that is re-executed or shown twice must not stack up copies of its rules. The newest
 * text wins, so that an upgraded bundle does not live with the rules of an older one.
 */
export function adoptStyle(el: HTMLElement, name: string, css: string): void {
  const root = el.getRootNode();
  const host = root instanceof ShadowRoot ? root : document.head;
  const id = `workbench-style-${name}`;
  let style = host.querySelector<HTMLStyleElement>(`style[data-id="${id}"]`);
  if (!style) {
    style = document.createElement('style');
    style.dataset['id'] = id;
    host.append(style);
  }
  if (style.textContent !== css) style.textContent = css;
}
