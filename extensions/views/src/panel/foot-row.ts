import type { CaptureInfo, CaptureKind } from '@torch-workbench/records';
import { Button } from '../controls/button';
import { roving, setStop } from '../controls/roving';
import { h } from '../dom';
import { count } from '../format';
import type { PanelContext, Row, RowState } from './context';
import { statusLine } from './status';

/** Row 4: the views, and the status line. */
export function footRow(context: PanelContext): Row {
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
  const buttons = [graph.button.el, memory.button.el, board.el];
  const views = h('div', { class: 'wb-btns', role: 'toolbar', 'aria-label': 'Views' }, ...buttons);
  roving(views, () => buttons);
  setStop(buttons, graph.button.el);
  return {
    el: h('div', { class: 'wb-row wb-foot' }, views, status.el),
    update(next) {
      const { state } = next.model;
      path = state.run_path;
      graph.update(next);
      memory.update(next);
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

/** Opens the newest capture of its kind; without one, captures the next step and opens that. */
function viewButton(kind: 'graph' | 'memory', context: PanelContext): ViewButton {
  const word = kind === 'graph' ? 'Graph' : 'Memory';
  let newest: CaptureInfo | null = null;
  let waiting = false;
  const button = new Button('is-quiet', { label: word, icon: kind }, () => {
    if (newest) {
      context.open({ kind, capture: newest.id });
      return;
    }
    waiting = true;
    void context.run('capture', { what: kind }).then((done) => {
      waiting &&= done;
    });
  });
  return {
    button,
    update({ model, locked }) {
      const { captures, status, step } = model.state;
      newest = newestCapture(captures, kind);
      if (waiting && newest) {
        waiting = false;
        context.open({ kind, capture: newest.id });
      }
      const nothing = newest === null && status === 'idle' && step === 0;
      const unable = nothing ? 'Run one step first' : newest === null && locked;
      const title = newest
        ? `${word} of step ${count(newest.step)}`
        : `Capture the next step and show its ${kind === 'graph' ? 'graph' : 'memory'}`;
      button.set({ disabled: unable || false, title });
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
