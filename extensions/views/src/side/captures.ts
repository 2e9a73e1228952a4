import type { CaptureInfo } from '@torch-workbench/records';
import { iconButton } from '../controls/button';
import { roving, setStop } from '../controls/roving';
import { drawOn, h, setAttr, setShown, setText } from '../dom';
import { age, bytes, count, oneLine } from '../format';
import { icon } from '../icons';
import type { Command, KernelModel } from '../kernel';
import type { OpenRequest } from '../panel/context';
import type { Dispose, Store } from '../store';
import type { OfExperiment } from './modes';
import { Rows } from './rows';

/** Ages move on without a message of the kernel. */
const AGE_MS = 5_000;

/**
 * The captures an experiment holds, newest first; a press opens one. What is pointed at or focused
 * can be compared with the one of its kind before it.
 */
export function mountCaptures(
  el: HTMLElement,
  store: Store<KernelModel, Command>,
  { experiment }: OfExperiment,
): Dispose {
  const list = h('div', { class: 'wb-rows', role: 'list' });
  const empty = h('p', { class: 'wb-side-empty' }, 'No step has been captured yet.');
  const frame = h('div', { class: 'wb wb-list' }, list, empty);
  el.append(frame);
  const buttons = (): HTMLElement[] => [...list.querySelectorAll<HTMLElement>('button')];
  roving(list, buttons);
  const open = (what: Omit<OpenRequest, 'experiment'>): void => {
    const detail: OpenRequest = { ...what, experiment };
    const init = { detail, bubbles: true, cancelable: true, composed: true };
    frame.dispatchEvent(new CustomEvent('workbench:open', init));
  };
  const rows = new Rows<CaptureInfo>(
    list,
    ({ id }) => id,
    (capture) => new CaptureRow(capture, open),
  );
  const draw = (): void => {
    const held = store.get().experiments.get(experiment)?.state.captures ?? [];
    const captures = [...held].sort((a, b) => b.created_at - a.created_at);
    rows.show(captures);
    setShown(empty, captures.length === 0);
    const [first] = buttons();
    if (first && !list.contains(document.activeElement)) setStop(buttons(), first);
  };
  const end = drawOn(store, draw, { period: AGE_MS });
  return () => {
    end();
    frame.remove();
  };
}

/** Of the experiment whose captures are listed. */
type Request = Omit<OpenRequest, 'experiment'>;

class CaptureRow {
  readonly el: HTMLElement;
  private readonly ago = h('span', { class: 'ag' });
  private readonly compare: HTMLButtonElement;
  private readonly actions: HTMLElement;
  private request: Request | null = null;

  constructor(
    private readonly capture: CaptureInfo,
    open: (what: Request) => void,
  ) {
    const name = nameOf(capture);
    const title = oneLine(capture.summary, 400) || `Open ${name}`;
    const button = h('button', { type: 'button', class: 'wb-cap', title }, icon(capture.kind));
    button.append(h('span', {}, name), h('span', { class: 'sz' }, bytes(capture.num_bytes)));
    button.append(this.ago);
    button.addEventListener('click', () => open({ kind: capture.kind, capture: capture.id }));
    this.compare = iconButton('diff', '', () => {
      if (this.request) open(this.request);
    });
    this.actions = h('span', { class: 'wb-acts' }, this.compare);
    this.el = h('div', { role: 'listitem', class: 'wb-cap-row' }, button);
    setAttr(button, 'data-capture', capture.id);
  }

  /** `all` is what the experiment holds, newest first. */
  update(_: CaptureInfo, all: readonly CaptureInfo[]): void {
    setText(this.ago, `${age(Date.now() / 1000, this.capture.created_at)} ago`);
    const { kind } = this.capture;
    const before = kind === 'diff' ? undefined : oneBefore(all, this.capture);
    if (before === undefined) return this.actions.remove();
    if (!this.actions.isConnected) this.el.append(this.actions);
    this.request = kind === 'memory' ? this.memoryDiff(before) : this.graphDiff(all, before);
    const what = kind === 'memory' ? 'memory' : 'graphs';
    const label = `Compare the ${what} of steps ${count(before.step)} and ${count(this.capture.step)}`;
    setAttr(this.compare, 'aria-label', label);
    setAttr(this.compare, 'title', label);
  }

  /** The diff that is held, else one to be made. */
  private graphDiff(all: readonly CaptureInfo[], before: CaptureInfo): Request {
    const held = all.find(
      ({ kind, step, against_step }) =>
        kind === 'diff' && step === this.capture.step && against_step === before.step,
    );
    const compare = [before.id, this.capture.id] as const;
    return held ? { kind: 'diff', capture: held.id } : { kind: 'diff', compare };
  }

  /** The browser compares what the kernel holds already. */
  private memoryDiff(before: CaptureInfo): Request {
    return { kind: 'memory-diff', compare: [before.id, this.capture.id] };
  }
}

function nameOf({ kind, step, against_step }: CaptureInfo): string {
  return kind === 'diff'
    ? `diff steps ${count(against_step ?? 0)} → ${count(step)}`
    : `${kind} step ${count(step)}`;
}

/** The capture of this kind before this one; `all` is sorted, newest first. */
function oneBefore(all: readonly CaptureInfo[], capture: CaptureInfo): CaptureInfo | undefined {
  const older = all.slice(all.findIndex(({ id }) => id === capture.id) + 1);
  return older.find(({ kind }) => kind === capture.kind);
}
