/**
 * Graph and memory below the panel, for hosts where nothing opens tabs (VS Code, Colab, marimo, a
 * JupyterLab without the extension). The views' own bundles are asked of the kernel when the first
 * one is opened, because a panel that carried them all would be too heavy for a notebook with many.
 */
import type { InlineView, KernelStore, OpenRequest } from '@torch-workbench/views';
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
        unmount = module.default.render({ model: recordModel(bytes), el: host });
      })
      .catch((error: unknown) => {
        const reason = error instanceof Error ? error.message : String(error);
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

/** What a record's widget reads, without a kernel behind it. */
function recordModel(bytes: ArrayBuffer): WidgetModel {
  const values: Record<string, unknown> = { record: new DataView(bytes), error: '' };
  return {
    get: (name) => values[name],
    set: () => undefined,
    save_changes: () => undefined,
    on: () => undefined,
    off: () => undefined,
    send: () => undefined,
  };
}
