/**
 * Graph and memory below the panel, for hosts where nothing opens tabs (VS Code, Colab, marimo, a
 * JupyterLab without the extension). The views' own bundles are asked of the kernel when the first
 * one is opened, because a panel that carried them all would be too heavy for a notebook with many.
 */
import type { InlineView, KernelStore, OpenRequest } from '@torch-workbench/views';
import type { RenderProps, WidgetModel } from './host';
import { adoptStyle } from './style';

interface WidgetModule {
  readonly default: { render(props: RenderProps): (() => void) | undefined };
}

/** A view's bundle: its module, and the stylesheet that goes beside it. */
interface Bundle {
  readonly module: WidgetModule;
  readonly css: string;
}

type Answer = (data: Record<string, unknown>, buffers?: readonly ArrayBufferView[]) => void;

const LIMIT_MS = 10_000;
const loaded = new Map<string, Promise<Bundle>>();

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
  const [bundle, bytes] = await Promise.all([widgetBundle(model, kind), wanted]);
  return { bundle, bytes };
}

function widgetBundle(model: WidgetModel, name: string): Promise<Bundle> {
  const known = loaded.get(name);
  if (known) return known;
  const bundle = askBundle(model, name).then(async ([js, css]) => ({
    module: await importText(js),
    css: new TextDecoder().decode(css),
  }));
  loaded.set(name, bundle);
  bundle.catch(() => loaded.delete(name));
  return bundle;
}

/** The texts of `workbench/static/<name>.js` and `.css`, over the widget's own messages. */
function askBundle(
  model: WidgetModel,
  name: string,
): Promise<readonly [ArrayBufferView, ArrayBufferView]> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      clearTimeout(timer);
      model.off('msg:custom', answer as never);
    };
    const answer: Answer = (data, buffers) => {
      if (data['type'] !== 'module' || data['name'] !== name) return;
      end();
      const [js, css] = buffers ?? [];
      if (js && css) resolve([js, css]);
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
