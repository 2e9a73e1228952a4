import { DocumentModel, TextModelFactory } from '@jupyterlab/docregistry';

/** Name of the model of a file whose bytes stay where they are. */
export const UNREAD = 'workbench-unread';

/**
 * A file that JupyterLab itself does not read: of a snapshot of a gigabyte it would fetch every
 * byte, as base64, and put a copy aside as a checkpoint before anything is looked at.
 */
export class UnreadModelFactory extends TextModelFactory {
  constructor() {
    super(false);
  }

  override get name(): string {
    return UNREAD;
  }

  /** Without a format no content is requested. */
  override get fileFormat(): null {
    return null;
  }

  /** To JupyterLab a model that others share is never its own to save, so it makes no checkpoint. */
  override createNew(
    options: Parameters<TextModelFactory['createNew']>[0] = {},
  ): ReturnType<TextModelFactory['createNew']> {
    return new DocumentModel({ ...options, collaborationEnabled: true });
  }
}
