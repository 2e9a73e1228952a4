import type { Kernel } from '@jupyterlab/services';
import type { JSONObject } from '@lumino/coreutils';
import { type Buffer, type Channel, type ChannelData, PROTOCOL } from '@torch-workbench/views';

const CONTROL = 'workbench.control';
const METRICS = 'workbench.metrics';

/** A kernel in one of these states keeps no comm, so there is nobody to say goodbye to. */
const GONE: readonly Kernel.Status[] = ['restarting', 'autorestarting', 'terminating', 'dead'];

/**
 * The two comms of one browser view, as one channel.
 *
 * Both are opened from here: ipykernel 7.4 answers a front-end message on the shell that last
 * *sent* on its comm, so commands travel on a comm on which the kernel never sends and a Stop
 * arrives while a cell blocks. The control comm is opened when the kernel has spoken on the other
 * one: a kernel without Workbench refuses a single comm, and nothing else is left of the attempt.
 */
export class CommChannel implements Channel {
  static async open(kernel: Kernel.IKernelConnection, client: string): Promise<CommChannel> {
    const metrics = await newComm(kernel, METRICS);
    return new CommChannel(kernel, metrics, { protocol: PROTOCOL, client });
  }

  private constructor(
    private readonly kernel: Kernel.IKernelConnection,
    private readonly metrics: Kernel.IComm,
    private readonly greeting: JSONObject,
  ) {
    metrics.onMsg = (message) => {
      void this.openControl();
      this.deliver(message.content.data as ChannelData, message.buffers ?? []);
    };
    metrics.onClose = () => this.end();
    metrics.open(greeting);
  }

  send(data: ChannelData): void {
    if (this.control === null) {
      this.waiting.push(data);
    } else {
      this.control.send(data as JSONObject);
    }
  }

  onMessage(callback: (data: ChannelData, buffers: readonly Buffer[]) => void): void {
    this.deliver = callback;
  }

  onClose(callback: (reason: string, final?: boolean) => void): void {
    this.tellClosed = callback;
  }

  close(): void {
    this.closed = true;
    this.tellClosed = () => undefined;
    for (const comm of [this.metrics, this.control]) {
      if (comm !== null && !comm.isDisposed) {
        comm.onClose = () => undefined;
        if (GONE.includes(this.kernel.status)) {
          comm.dispose();
        } else {
          comm.close();
        }
      }
    }
  }

  private async openControl(): Promise<void> {
    if (this.opening) {
      return;
    }
    this.opening = true;
    const control = await newComm(this.kernel, CONTROL);
    if (this.closed) {
      control.dispose();
      return;
    }
    control.onClose = () => this.end();
    control.open(this.greeting);
    this.control = control;
    for (const data of this.waiting.splice(0)) {
      control.send(data as JSONObject);
    }
  }

  /** The kernel has no such target, or took its side down: it will announce itself again. */
  private end(): void {
    const tellClosed = this.tellClosed;
    // A comm that the kernel closed is taken off the connection after this call.
    queueMicrotask(() => this.close());
    tellClosed('the kernel closed the channel: run the cell again', true);
  }

  private control: Kernel.IComm | null = null;
  private opening = false;
  private closed = false;
  private readonly waiting: ChannelData[] = [];
  private deliver: (data: ChannelData, buffers: readonly Buffer[]) => void = () => undefined;
  private tellClosed: (reason: string, final?: boolean) => void = () => undefined;
}

/** A comm that does not wait behind the running cell: opened when its subshell is there. */
async function newComm(kernel: Kernel.IKernelConnection, target: string): Promise<Kernel.IComm> {
  const comm = kernel.createComm(target);
  await kernel.info;
  if (kernel.supportsSubshells) {
    keepSubshell(kernel, target);
    // JupyterLab's comms name the promise of their subshell; their interface does not.
    const shell = comm as { commsOverSubshells?: string; subshellStarted?: Promise<void> };
    if (shell.commsOverSubshells !== 'disabled') {
      await shell.subshellStarted;
    }
  }
  return comm;
}

const keepers = new WeakMap<Kernel.IKernelConnection, Set<string>>();

/**
 * Keeps the subshell of a target for as long as the connection lives, by a comm that is never
 * opened. JupyterLab deletes the subshell with the target's last comm, and ipykernel 7.4 then
 * complains of destroyed tasks in whichever cell ran last.
 */
export function keepSubshells(kernel: Kernel.IKernelConnection): void {
  if (kernel.supportsSubshells) {
    keepSubshell(kernel, METRICS);
    keepSubshell(kernel, CONTROL);
  }
}

/** A restart ends every subshell, and with them what kept them. */
export function forgetSubshells(kernel: Kernel.IKernelConnection): void {
  keepers.delete(kernel);
}

function keepSubshell(kernel: Kernel.IKernelConnection, target: string): void {
  const kept = keepers.get(kernel) ?? new Set();
  keepers.set(kernel, kept);
  if (!kept.has(target)) {
    kept.add(target);
    kernel.createComm(target);
  }
}
