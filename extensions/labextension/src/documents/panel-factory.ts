import { ABCWidgetFactory, type DocumentRegistry, DocumentWidget } from '@jupyterlab/docregistry';
import type { RecordPanel } from './record-panel';

/** Opens files in the main area, each in a panel that `make` makes. */
export class PanelFactory extends ABCWidgetFactory<DocumentWidget<RecordPanel>> {
  constructor(
    options: DocumentRegistry.IWidgetFactoryOptions,
    private readonly make: (context: DocumentRegistry.Context) => RecordPanel,
  ) {
    super(options);
  }

  protected override createNewWidget(
    context: DocumentRegistry.Context,
  ): DocumentWidget<RecordPanel> {
    const widget = new DocumentWidget({ content: this.make(context), context });
    // The view has a bar of its own; an empty one above it is a stripe.
    widget.toolbar.hide();
    return widget;
  }
}
