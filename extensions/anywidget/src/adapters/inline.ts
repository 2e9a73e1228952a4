/**
 * Graph and memory below the panel, for hosts where nothing opens tabs (VS Code, Colab, a JupyterLab
 * without the extension). The views' own bundles are requested from the kernel when the first one is
 * opened, because a panel that carried them all would be too heavy for a notebook with many.
 */
import type { InlineView, KernelStore, OpenRequest } from '@torch-workbench/views';
import { messageOf } from '@torch-workbench/views';
import { bundleOf, type Bundle } from './bundle';
import type { WidgetModel } from './host';
import { adoptStyle } from './style';

/** How a panel shows a capture below itself. */
export function inlineView(model: WidgetModel, store: KernelStore): InlineView {
  return (request, host) => {
    const view = new AbortController();
    let unmount: (() => void) | undefined;
    host.textContent = 'Loading';
    void open(model, store, request)
      .then(({ bundle: { module, css }, bytes }) => {
        if (view.signal.aborted) return;
        host.textContent = '';
        adoptStyle(host, request.kind, css);
        const { experiment, capture = '' } = request;
        const ask: Ask = (question) => store.ask(experiment, capture, question);
        unmount = module.default.render({ model: recordModel(model, bytes, ask), el: host });
      })
      .catch((error: unknown) => {
        if (view.signal.aborted) return; // another view is shown here by now
        const reason = messageOf(error);
        const call = `wb.${request.kind}(…)`;
        host.textContent = `${reason}. In a cell, ${call} shows the same view.`;
      });
    return () => {
      view.abort();
      unmount?.();
    };
  };
}

async function open(
  model: WidgetModel,
  store: KernelStore,
  { kind, experiment, capture }: OpenRequest,
): Promise<{ bundle: Bundle; bytes: ArrayBuffer }> {
  const wanted = store.fetchRecord(experiment, capture ?? '');
  const [bundle, bytes] = await Promise.all([bundleOf(model, kind), wanted]);
  return { bundle, bytes };
}

type Ask = (question: object) => Promise<object>;
type Listener = (data: Record<string, unknown>) => void;

/**
 * What a record's widget has for a model here: its questions go to the kernel by the panel's own
 * channel, and bundles come with the panel's own messages.
 */
export function recordModel(panel: WidgetModel, bytes: ArrayBuffer, ask: Ask): WidgetModel {
  const values: Record<string, unknown> = { record: new DataView(bytes), error: '' };
  const listeners = new Set<Listener>();
  const answer = (id: unknown, what: Record<string, unknown>): void => {
    for (const listener of [...listeners]) listener({ type: 'answer', id, ...what });
  };
  return {
    widget_manager: panel.widget_manager,
    get: (name) => values[name],
    set: () => undefined,
    save_changes: () => undefined,
    on(event, callback) {
      if (event !== 'msg:custom') return;
      listeners.add(callback as Listener);
      panel.on(event, callback);
    },
    off(event, callback) {
      if (event !== 'msg:custom' || !callback) return;
      listeners.delete(callback as Listener);
      panel.off(event, callback);
    },
    send(content) {
      const { type, id, question } = content as { type: string; id: unknown; question: object };
      if (type !== 'ask') return panel.send(content);
      ask(question).then(
        (found) => answer(id, { answer: found }),
        (error: unknown) => answer(id, { error: messageOf(error) }),
      );
    },
  };
}
