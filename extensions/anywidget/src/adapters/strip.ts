/**
 * The gradient flow below the graph of an experiment. Most graphs have none, so the strip's bundle
 * is requested from the kernel when one comes with it; without an answer there is the graph alone.
 */
import type { Dispose, Store } from '@torch-workbench/views';
import { mount, type GraphViewState } from '@torch-workbench/views/graph';
import { bundleOf } from './bundle';
import type { WidgetModel } from './host';

type FlowModule = typeof import('../flow');

/** Mounts the graph with room below it for the strip of `flow`, the bytes of a gradient flow. */
export function mountWithStrip(
  model: WidgetModel,
  el: HTMLElement,
  store: Store<GraphViewState, never>,
  flow: ArrayBufferView,
): Dispose {
  const slot = document.createElement('div');
  slot.style.display = 'contents';
  let colours: GraphViewState['colours'] = null;
  let show = (): void => undefined;
  const coloured: typeof store = {
    ...store,
    get: () => ({ ...store.get(), colours }),
    subscribe: (listener) => store.subscribe((show = listener)),
  };
  const dispose = mount(el, coloured, { slots: { foot: slot } });
  let strip: ReturnType<FlowModule['below']> | undefined;
  let gone = false;
  const add = async (): Promise<void> => {
    const { module, css } = await bundleOf<FlowModule>(model, 'flow');
    if (gone) return;
    strip = module.below(el, css, flow, store.get().record?.step ?? null, (next) => {
      colours = next;
      show();
    });
    slot.append(strip.element);
  };
  add().catch(() => undefined);
  return () => {
    gone = true;
    strip?.dispose();
    dispose();
  };
}
