import type { CaptureInfo, CaptureKind } from '@torch-workbench/records';
import { Button } from '../controls/button';
import type { Popover } from '../controls/popover';
import { roving, setStop } from '../controls/roving';
import { h } from '../dom';
import { count } from '../format';
import type { PanelContext, Row, RowState } from './context';
import { notesButton } from './notes';
import { statusLine } from './status';

/** Row 4: the views, what is noted, and the status line. */
export function footRow(context: PanelContext, popover: Popover): Row {
  const graph = viewButton('graph', context);
  const memory = viewButton('memory', context);
  let path = '';
  const board = new Button(
    'is-quiet',
    { label: 'TensorBoard', icon: 'tensorboard' },
    () => {
      if (!context.open({ kind: 'tensorboard', path })) {
        context.fail(
          `TensorBoard opens inside JupyterLab. Here, run: tensorboard --logdir ${path}`,
        );
      }
    },
    'external',
  );
  const status = statusLine();
  const notes = notesButton(popover);
  const buttons = [graph.button.el, memory.button.el, board.el, notes.el];
  const views = h('div', { class: 'wb-btns', role: 'toolbar', 'aria-label': 'Views' }, ...buttons);
  roving(views, () => buttons.filter(({ hidden }) => !hidden));
  setStop(buttons, graph.button.el);
  return {
    el: h('div', { class: 'wb-row wb-foot' }, views, status.el),
    update(next) {
      const { state } = next.model;
      path = state.run_path;
      graph.update(next);
      memory.update(next);
      notes.update(state.notes);
      const lost = state.dropped_points;
      const dropped = `${count(lost)} metric points were lost: the disk is slow or full`;
      if (next.locked) status.update(next.locked, 'is-warn');
      else status.update(lost > 0 ? dropped : state.message, lost > 0 ? 'is-warn' : '');
    },
    dispose: () => status.dispose(),
  };
}

interface ViewButton {
  readonly button: Button;
  update(state: RowState): void;
}

/** What a press waits for: a capture that was not held when it came. */
interface Wait {
  readonly held: ReadonlySet<string>;
  /** Whether a run was under way, whose end ends the wait too. */
  readonly training: boolean;
  /** The status line as it was. */
  readonly message: string;
}

/** The kernel's status line after a step for a capture that failed (`experiment/runtime/runner.py`). */
const RAISED = 'the step for a capture raised';

/**
 * Opens the newest capture of its kind where no step has been done since, or none can be done now:
 * after a failure, or without a kernel. Else it captures the next step, which the kernel computes.
 */
function viewButton(kind: 'graph' | 'memory', context: PanelContext): ViewButton {
  const word = kind === 'graph' ? 'Graph' : 'Memory';
  let captures: readonly CaptureInfo[] = [];
  let training = false;
  let message = '';
  /** What a press opens; null where it captures. */
  let shown: CaptureInfo | null = null;
  let wait: Wait | null = null;
  const open = ({ id }: CaptureInfo): void => void context.open({ kind, capture: id });
  const button = new Button('is-quiet', { label: word, icon: kind }, () => {
    if (wait?.training) return;
    if (shown) return open(shown);
    wait ??= { held: new Set(captures.map(({ id }) => id)), training, message };
    void context.run('capture', { what: kind }).then((done) => {
      if (!done) wait = null;
    });
  });
  return {
    button,
    update({ model, locked }) {
      const { status, step } = model.state;
      ({ captures, message } = model.state);
      training = status === 'training' && !locked;
      const newest = newestCapture(captures, kind);
      const come = wait && newest && !wait.held.has(newest.id);
      const raised = wait && message !== wait.message && message.includes(RAISED);
      const over = raised || (wait?.training && status !== 'training');
      if (come || over) wait = null;
      if ((come || over) && newest) open(newest);
      const isNow = newest !== null && newest.step >= step;
      const cannot = locked !== '' || model.state.failure !== null;
      shown = !training && (isNow || cannot) ? newest : null;
      const nothing = newest === null && status === 'idle' && step === 0;
      const unable = nothing ? 'Run one step first' : newest === null && locked;
      const title = shown
        ? `Open the ${kind} of step ${count(shown.step)}, the newest captured`
        : `Capture the next step and open its ${kind}`;
      button.set({ disabled: unable || false, title: wait ? 'Capturing the next step' : title });
    },
  };
}

/** The newest capture of a kind, or null. */
export function newestCapture(
  captures: readonly CaptureInfo[],
  kind: CaptureKind,
): CaptureInfo | null {
  const all = captures.filter((capture) => capture.kind === kind);
  return all.reduce<CaptureInfo | null>(
    (best, one) => (best === null || one.created_at > best.created_at ? one : best),
    null,
  );
}
