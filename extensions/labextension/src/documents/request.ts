import type { IOpenRequest } from '../tokens';

const KINDS = ['graph', 'memory', 'diff', 'memory-diff', 'tensorboard', 'goto'];

/** The event a view dispatches from its element; it bubbles, crosses shadow roots, can be taken. */
export const OPEN_EVENT = 'workbench:open';

/** Where on the page a view says which notebook it belongs to. */
export const NOTEBOOK_ATTRIBUTE = 'data-workbench-notebook';
/** And of which experiment it shows a capture. */
export const EXPERIMENT_ATTRIBUTE = 'data-workbench-experiment';

/** What the event requests, null when it is not one of ours. */
export function readRequest(event: Event): IOpenRequest | null {
  const detail = (event as CustomEvent<Partial<IOpenRequest> | null>).detail;
  return detail != null && KINDS.includes(String(detail.kind)) ? (detail as IOpenRequest) : null;
}

/** Path of the notebook that a view outside every notebook belongs to. */
export function notebookOf(event: Event): string | null {
  for (const target of event.composedPath()) {
    const path = target instanceof Element ? target.getAttribute(NOTEBOOK_ATTRIBUTE) : null;
    if (path !== null) {
      return path;
    }
  }
  return null;
}
