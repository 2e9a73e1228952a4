/**
 * Another view's bundle, requested from the kernel when it is needed: `workbench/static/<name>.js` and its
 * stylesheet, over the widget's own messages.
 */
import type { RenderProps, WidgetModel } from './host';

export interface WidgetModule {
  readonly default: { render(props: RenderProps): (() => void) | undefined };
}

/** A view's bundle: its module, and the stylesheet that goes beside it. */
export interface Bundle<M = WidgetModule> {
  readonly module: M;
  readonly css: string;
}

type Answer = (data: Record<string, unknown>, buffers?: readonly ArrayBufferView[]) => void;

const LIMIT_MS = 10_000;
const loaded = new Map<string, Promise<Bundle<unknown>>>();

/** The bundle of a view; loaded once for all widgets of the page. */
export function bundleOf<M = WidgetModule>(model: WidgetModel, name: string): Promise<Bundle<M>> {
  const known = loaded.get(name);
  if (known) return known as Promise<Bundle<M>>;
  const bundle = askBundle(model, name).then(async ([js, css]) => ({
    module: (await importText(js)) as M,
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

async function importText(text: ArrayBufferView): Promise<unknown> {
  const blob = new Blob([text as BlobPart], { type: 'text/javascript' });
  const url = URL.createObjectURL(blob);
  try {
    return await import(/* @vite-ignore */ url);
  } finally {
    URL.revokeObjectURL(url);
  }
}
