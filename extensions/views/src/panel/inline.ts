import { iconButton } from '../controls/button';
import { h, setShown, setText } from '../dom';
import type { OpenRequest } from './context';

/** Mounts a view for a host that opens no tabs; returns what unmounts it, or null if it cannot. */
export type InlineView = (request: OpenRequest, host: HTMLElement) => (() => void) | null;

export interface InlineArea {
  readonly el: HTMLElement;
  open(request: OpenRequest): boolean;
  dispose(): void;
}

const TITLES: Readonly<Record<string, string>> = { graph: 'Graph', memory: 'Memory' };

/** The place below the panel where a view is shown when nothing opens tabs. */
export function inlineArea(mount: InlineView | undefined): InlineArea {
  const title = h('h3');
  const host = h('div', { class: 'wb-inline-body' });
  let unmount: (() => void) | null = null;
  const clear = (): void => {
    unmount?.();
    unmount = null;
    host.replaceChildren();
    setShown(el, false);
  };
  const close = iconButton('close', 'Close this view', clear);
  const el = h('section', { class: 'wb-row wb-inline' }, h('header', {}, title, close), host);
  setShown(el, false);
  return {
    el,
    open(request) {
      clear();
      setText(title, TITLES[request.kind] ?? '');
      setShown(el, true);
      unmount = mount?.(request, host) ?? null;
      if (!unmount) clear();
      return unmount !== null;
    },
    dispose: clear,
  };
}
