import type { JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { CaptureView } from './capture';
import { inFront } from './place';
import { RecordPanel } from './record-panel';

/** The record in the tab in front, a live capture's or a file's; null where that shows another thing. */
export function currentRecord(shell: JupyterFrontEnd.IShell): RecordPanel | null {
  for (const tab of inFront(shell)) {
    const content = tab instanceof MainAreaWidget ? (tab.content as unknown) : null;
    if (content instanceof RecordPanel) {
      return content;
    }
  }
  return null;
}

/** The capture of a live kernel in the tab in front; null where that shows another thing. */
export function currentCapture(shell: JupyterFrontEnd.IShell): CaptureView | null {
  const record = currentRecord(shell);
  return record instanceof CaptureView ? record : null;
}
