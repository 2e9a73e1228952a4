import type { Kernel } from '@jupyterlab/services';
import type { JSONObject } from '@lumino/coreutils';
import type { Buffer, Channel, ChannelData } from '@torch-workbench/views';
import { PROTOCOL } from '@torch-workbench/views';

const CONTROL = 'workbench.control';
const METRICS = 'workbench.metrics';

/**
 * The two comms of one browser view, as one channel.
 *
 * Both are opened from here: ipykernel 7.4 answers a front-end message on the shell that last
 * *sent* on its comm, so commands travel on a comm on which the kernel never sends and a Stop
 * arrives while a cell blocks.
 */
export class CommChannel implements Channel {
  /** Opens both comms on the notebook's own connection to its kernel. */
  static async open(kernel: Kernel.IKernelConnection, client: string): Promise<CommChannel> {
    const metrics = kernel.createComm(METRICS);
    const control = kernel.createComm(CONTROL);
    await kernel.info;
    if (kernel.supportsSubshells) {
      // Opened before the subshell is there, the comm would wait behind the running cell.
      await Promise.all([subshellOf(metrics), subshellOf(control)]);
    }
    return new CommChannel(metrics, control, client);
  }

  private constructor(
    private readonly metrics: Kernel.IComm,
    private readonly control: Kernel.IComm,
    client: string,
  ) {
    metrics.onMsg = (message) =>
      this.deliver(message.content.data as ChannelData, message.buffers ?? []);
    metrics.onClose = control.onClose = () => this.end();
    const greeting = { protocol: PROTOCOL, client };
    control.open(greeting);
    metrics.open(greeting);
  }

  send(data: ChannelData): void {
    this.control.send(data as JSONObject);
  }

  onMessage(callback: (data: ChannelData, buffers: readonly Buffer[]) => void): void {
    this.deliver = callback;
  }

  onClose(callback: (reason: string, final?: boolean) => void): void {
    this.closed = callback;
  }

  /** Says goodbye, unless the kernel is gone. */
  close(): void {
    this.closed = () => undefined;
    for (const comm of [this.metrics, this.control]) {
      comm.onClose = () => undefined;
      if (!comm.isDisposed) {
        comm.close();
      }
    }
  }

  /** The kernel has no such target, or took its side down: it will announce itself again. */
  private end(): void {
    const closed = this.closed;
    this.close();
    closed('the kernel closed the channel: run the cell again', true);
  }

  private deliver: (data: ChannelData, buffers: readonly Buffer[]) => void = () => undefined;
  private closed: (reason: string, final?: boolean) => void = () => undefined;
}

/** JupyterLab's comms name the promise of their subshell; the interface does not. */
function subshellOf(comm: Kernel.IComm): Promise<void> | undefined {
  return (comm as { subshellStarted?: Promise<void> }).subshellStarted;
}
