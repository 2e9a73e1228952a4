/**
 * The panel as a widget. Its model carries two strings: `experiment` (the id) and `name`. All else
 * travels over the live channels, so that any number of panels show one experiment.
 */
import { KernelStore, mountPanel } from '@torch-workbench/views';
import { widgetConnect } from './adapters/channel';
import type { RenderProps } from './adapters/host';
import { inlineView } from './adapters/inline';

function render({ model, el }: RenderProps): () => void {
  const store = new KernelStore({ connect: widgetConnect(model) });
  const experiment = String(model.get('experiment') ?? '');
  const name = String(model.get('name') ?? '');
  const unmount = mountPanel(el, store, { experiment, name, inline: inlineView(model, store) });
  return () => {
    unmount();
    store.dispose();
  };
}

export default { render };
