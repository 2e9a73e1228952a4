/**
 * The gradient flow below the graph of an experiment. Most graphs have none, so the strip's bundle
 * is asked of the kernel when one comes with it; without an answer there is the graph alone.
 */
import type { Dispose, Store } from '@torch-workbench/views';
import { mount, type GraphViewState } from '@torch-workbench/views/graph';
import { bundleOf } from './bundle';
import type { WidgetModel } from './host';
import { adoptStyle } from './style';

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
  const listeners = new Set<() => void>();
  const coloured: typeof store = {
    get: () => ({ ...store.get(), colours: colours ?? null }),
    subscribe(listener) {
      listeners.add(listener);
      const end = store.subscribe(listener);
      return () => {
        listeners.delete(listener);
        end();
      };
    },
    send: (command) => store.send(command),
  };
  const ends = [mount(el, coloured, { slots: { foot: slot } })];
  const show = async (): Promise<void> => {
    const { module, css } = await bundleOf<FlowModule>(model, 'flow');
    if (ends.length === 0) return;
    adoptStyle(el, 'flow', css);
    const step = store.get().record?.step ?? null;
    const strip = module.below(el, flow, step, (next) => {
      colours = next;
      for (const listener of listeners) listener();
    });
    slot.append(strip.element);
    ends.push(() => strip.dispose());
  };
  show().catch(() => undefined);
  return () => {
    for (const end of ends.splice(0)) end();
  };
}
