/**
 * The gradient-flow strip as a widget: the model carries the bytes of one record, or an error. A
 * graph's widget takes the strip from here, too, to stand below its drawing.
 */
import { GRADIENT_FLOW, readRecordAs } from '@torch-workbench/records';
import { FlowFoot, mount, type FootHost } from '@torch-workbench/views/flow';
import type { RenderProps } from './adapters/host';
import { recordStore } from './adapters/record';
import { adoptStyle } from './adapters/style';

function render({ model, el }: RenderProps): () => void {
  return mount(
    el,
    recordStore(model, (bytes) => readRecordAs(GRADIENT_FLOW, bytes)),
  );
}

/** The strip below a graph of the step `current`: the training as it was when the cell ran. */
export function below(
  root: HTMLElement,
  css: string,
  bytes: ArrayBufferView,
  current: number | null,
  colour: FootHost['colour'],
): FlowFoot {
  adoptStyle(root, 'flow', css);
  const foot = new FlowFoot(root, {
    colour,
    goTo: () => false,
    open: true,
    onToggle: () => undefined,
  });
  const captured = current === null ? [] : [current];
  foot.update({ record: readRecordAs(GRADIENT_FLOW, bytes), captured, current });
  return foot;
}

export default { render };
