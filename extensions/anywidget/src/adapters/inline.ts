/**
 * Graph and memory below the panel, for hosts where nothing opens tabs (VS Code, Colab, marimo, a
 * JupyterLab without the extension). The views' own bundles are asked of the kernel when the first
 * one is opened, because a panel that carried them all would be too heavy for a notebook with many.
 */
import type { InlineView, KernelStore, OpenRequest } from '@torch-workbench/views';
import type { RenderProps, WidgetModel } from './host';

interface WidgetModule {
  readonly default: { render(props: RenderProps): (() => void) | undefined };
}

type Answer = (data: Record<string, unknown>, buffers?: readonly ArrayBufferView[]) => void;

const LIMIT_MS = 10_000;
const loaded = new Map<string, Promise<WidgetModule>>();

/** How a panel shows a capture below itself. */
export function inlineView(model: WidgetModel, store: KernelStore): InlineView {
  return (request, host) => {
    const view = new AbortController();
    let unmount: (() => void) | undefined;
    host.textContent = 'Loading';
    void open(model, store, request)
      .then(({ module, bytes }) => {
        if (view.signal.aborted) return;
        host.textContent = '';
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
): Promise<{ module: WidgetModule; bytes: ArrayBuffer }> {
  const wanted = store.fetchRecord(experiment, capture ?? '');
  const [module, bytes] = await Promise.all([widgetModule(model, kind), wanted]);
  return { module, bytes };
}

function widgetModule(model: WidgetModel, name: string): Promise<WidgetModule> {
  const known = loaded.get(name);
  if (known) return known;
  const module = askModule(model, name).then(importText);
  loaded.set(name, module);
  module.catch(() => loaded.delete(name));
  return module;
}

/** The text of `workbench/static/<name>.js`, over the widget's own messages. */
function askModule(model: WidgetModel, name: string): Promise<ArrayBufferView> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      clearTimeout(timer);
      model.off('msg:custom', answer as never);
    };
    const answer: Answer = (data, buffers) => {
      if (data['type'] !== 'module' || data['name'] !== name) return;
      end();
      if (buffers?.[0]) resolve(buffers[0]);
      else reject(new Error(`This kernel has no ${name} view`));
    };
    const timer = setTimeout(() => {
      end();
      reject(new Error(`The kernel did not send the ${name} view`));
    }, LIMIT_MS);
    model.on('msg:custom', answer as never);
    model.send({ type: 'module', name });
  });
}

async function importText(text: ArrayBufferView): Promise<WidgetModule> {
  const blob = new Blob([text as BlobPart], { type: 'text/javascript' });
  const url = URL.createObjectURL(blob);
  try {
    return (await import(/* @vite-ignore */ url)) as WidgetModule;
  } finally {
    URL.revokeObjectURL(url);
  }
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
