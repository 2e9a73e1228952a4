/** The graph view on a page without a canvas, and what tests press and read on it. */
import { mount, type GraphViewState } from '../src/graph';

// jsdom has no canvas; the views draw nothing there and everything else works.
HTMLCanvasElement.prototype.getContext = () => null;

type Listened = GraphViewState & { subscribe?: (listener: () => void) => void };

export function shown(state: Listened): HTMLElement {
  document.body.replaceChildren();
  const host = document.createElement('div');
  document.body.append(host);
  const subscribe = (listener: () => void): (() => void) => {
    state.subscribe?.(listener);
    return () => {};
  };
  mount(host, { get: () => state, subscribe, send: () => Promise.resolve() });
  return host;
}

export function query<E extends Element>(host: ParentNode, selector: string): E {
  const found = host.querySelector<E>(selector);
  if (!found) throw new Error(`nothing matches ${selector}`);
  return found;
}

export function press(host: ParentNode, key: string, on?: Element): KeyboardEvent {
  const event = new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true });
  (on ?? query(host, 'canvas.wv-surface')).dispatchEvent(event);
  return event;
}

/** Types into the search; the first match is selected. */
export function find(host: ParentNode, text: string): void {
  const field = query<HTMLInputElement>(host, 'input[type=search]');
  field.value = text;
  field.dispatchEvent(new Event('input', { bubbles: true }));
}

/** The section of the inspector under a title, as text; empty where there is none. */
export function sectionText(host: ParentNode, title: string): string {
  const sections = [...host.querySelectorAll('.wv-inspector .wv-sec')];
  const found = sections.find((one) => one.querySelector('h3')?.textContent?.startsWith(title));
  return found?.textContent ?? '';
}

export function buttonNamed(host: ParentNode, text: string): HTMLButtonElement {
  const found = [...host.querySelectorAll('button')].find((one) =>
    one.textContent?.startsWith(text),
  );
  if (!found) throw new Error(`no button ${text}`);
  return found;
}
