import type { CaptureInfo } from '@torch-workbench/records';
import { roving, setStop } from '../controls/roving';
import { h, perFrame, setAttr, setShown, setText } from '../dom';
import { age, bytes, count, oneLine } from '../format';
import { icon } from '../icons';
import type { Command, KernelModel } from '../kernel';
import type { OpenRequest } from '../panel/context';
import type { Dispose, Store } from '../store';
import type { OfExperiment } from './modes';

/** Ages move on without a message of the kernel. */
const AGE_MS = 5_000;

/** The captures an experiment holds, newest first; a press opens one. */
export function mountCaptures(
  el: HTMLElement,
  store: Store<KernelModel, Command>,
  { experiment }: OfExperiment,
): Dispose {
  const list = h('div', { class: 'wb-rows', role: 'list' });
  const empty = h('p', { class: 'wb-side-empty' }, 'No step has been captured yet.');
  const frame = h('div', { class: 'wb wb-list' }, list, empty);
  el.append(frame);
  const rows = new Map<string, CaptureRow>();
  const buttons = (): HTMLElement[] => [...list.querySelectorAll<HTMLElement>('button')];
  roving(list, buttons);
  const open = (capture: CaptureInfo): void => {
    const detail: OpenRequest = { kind: capture.kind, experiment, capture: capture.id };
    const init = { detail, bubbles: true, cancelable: true, composed: true };
    frame.dispatchEvent(new CustomEvent('workbench:open', init));
  };
  const draw = (): void => {
    const held = store.get().experiments.get(experiment)?.state.captures ?? [];
    const captures = [...held].sort((a, b) => b.created_at - a.created_at);
    const ids = new Set(captures.map((capture) => capture.id));
    for (const [id, row] of rows) {
      if (ids.has(id)) continue;
      row.el.remove();
      rows.delete(id);
    }
    for (const [i, capture] of captures.entries()) {
      const row = rows.get(capture.id) ?? new CaptureRow(capture, open);
      rows.set(capture.id, row);
      row.tick();
      if (list.children[i] !== row.el) list.insertBefore(row.el, list.children[i] ?? null);
    }
    setShown(empty, captures.length === 0);
    const [first] = buttons();
    if (first && !list.contains(document.activeElement)) setStop(buttons(), first);
  };
  const frames = perFrame(draw);
  const timer = setInterval(frames.ask, AGE_MS);
  const unsubscribe = store.subscribe(frames.ask);
  draw();
  return () => {
    unsubscribe();
    frames.cancel();
    clearInterval(timer);
    frame.remove();
  };
}

class CaptureRow {
  readonly el: HTMLElement;
  private readonly ago = h('span', { class: 'ag' });

  constructor(
    private readonly capture: CaptureInfo,
    onOpen: (capture: CaptureInfo) => void,
  ) {
    const name = `${capture.kind} step ${count(capture.step)}`;
    const title = oneLine(capture.summary, 400) || `Open ${name}`;
    const button = h('button', { type: 'button', class: 'wb-cap', title }, icon(capture.kind));
    button.append(h('span', {}, name), h('span', { class: 'sz' }, bytes(capture.num_bytes)));
    button.append(this.ago);
    button.addEventListener('click', () => onOpen(capture));
    this.el = h('div', { role: 'listitem' }, button);
    setAttr(button, 'data-capture', capture.id);
  }

  tick(): void {
    setText(this.ago, `${age(Date.now() / 1000, this.capture.created_at)} ago`);
  }
}
