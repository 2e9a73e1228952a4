import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, KernelMessage } from '@jupyterlab/services';

/**
 * The comm that Workbench opens from the kernel when its targets are there.
 *
 * It carries nothing. Its presence shows an open page that Workbench has just been
 * imported, and a page that is loaded later that it was, without an attempt that an unrelated
 * kernel would log as an error.
 */
const PRESENCE = 'workbench.presence';

/** Has JupyterLab accept the comm: one of a target that it does not know it closes. */
export function acceptAnnouncement(kernel: Kernel.IKernelConnection): void {
  if (kernel.handleComms) {
    kernel.registerCommTarget(PRESENCE, () => undefined);
  }
}

/** Whether Workbench announces itself with this message, which reaches every connection. */
export function isAnnouncement(message: KernelMessage.IMessage): boolean {
  return (
    message.header.msg_type === 'comm_open' &&
    (message.content as { target_name?: unknown }).target_name === PRESENCE
  );
}

/** Whether Workbench announced itself in this kernel before. */
export async function isAnnounced(kernel: Kernel.IKernelConnection): Promise<boolean> {
  try {
    const reply = await kernel.requestCommInfo({ target_name: PRESENCE });
    const content = reply.content;
    return content.status === 'ok' && Object.keys(content.comms).length > 0;
  } catch {
    return false;
  }
}

/** Whether the notebook's code names the package: only then is its kernel queried unannounced. */
export function mentionsWorkbench(panel: NotebookPanel): boolean {
  const cells = panel.content.model?.cells;
  if (cells === undefined) {
    return false;
  }
  for (const cell of cells) {
    if (cell.type === 'code' && cell.sharedModel.source.includes('workbench')) {
      return true;
    }
  }
  return false;
}
