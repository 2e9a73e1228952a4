import type { Kernel } from '@jupyterlab/services';
import type { JSONObject } from '@lumino/coreutils';
import {
  type Buffer,
  type Channel,
  type ChannelData,
  messageOf,
  PROTOCOL,
} from '@torch-workbench/views';
import { type Comm, PlainComm } from './comm';

const CONTROL = 'workbench.control';
const METRICS = 'workbench.metrics';
/** Those of ipywidgets, which it opens and closes as a notebook opens. */
const OF_WIDGETS = ['jupyter.widget.control', 'jupyter.widget'];

/** A kernel in one of these states keeps no comm, so no close message is sent. */
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
    private readonly metrics: Comm,
    private readonly greeting: JSONObject,
  ) {
    this.restarts = restartsOf(kernel);
    metrics.onMsg = (message) => {
      this.openControl().catch((error: unknown) => this.tellClosed(messageOf(error)));
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
        if (this.isGone) {
          comm.dispose();
        } else {
          comm.close();
        }
      }
    }
  }

  /** The kernel that these comms were opened in keeps them no more. */
  private get isGone(): boolean {
    const { kernel } = this;
    return (
      kernel.isDisposed || GONE.includes(kernel.status) || this.restarts !== restartsOf(kernel)
    );
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

  private control: Comm | null = null;
  private readonly restarts: number;
  private opening = false;
  private closed = false;
  private readonly waiting: ChannelData[] = [];
  private deliver: (data: ChannelData, buffers: readonly Buffer[]) => void = () => undefined;
  private tellClosed: (reason: string, final?: boolean) => void = () => undefined;
}

/** A comm that does not wait behind the running cell: opened when its subshell is there. */
async function newComm(kernel: Kernel.IKernelConnection, target: string): Promise<Comm> {
  if (!kernel.handleComms) {
    return new PlainComm(kernel, target, await subshellOf(kernel, target));
  }
  const comm = kernel.createComm(target);
  await kernel.info;
  if (kernel.supportsSubshells) {
    keepSubshell(kernel, target);
    // JupyterLab's comms name the promise of their subshell; their interface does not.
    const shell = comm as { commsOverSubshells?: string; subshellStarted?: Promise<void> };
    if (shell.commsOverSubshells !== 'disabled') {
      const started = shell.subshellStarted?.then(() => true) ?? Promise.resolve(true);
      if ((await withinLimit(started)) === undefined) {
        // once its subshell came, this one would send there what follows an open that still waits
        comm.dispose();
        return new PlainComm(kernel, target, null);
      }
    }
  }
  return comm;
}

const restarted = new WeakMap<Kernel.IKernelConnection, number>();

/** How many restarts of its kernel a connection has seen. */
function restartsOf(kernel: Kernel.IKernelConnection): number {
  return restarted.get(kernel) ?? 0;
}

const keepers = new WeakMap<Kernel.IKernelConnection, Map<string, Comm>>();

/**
 * Keeps the subshells of our targets for as long as the connection lives, by a comm each that is
 * never opened. JupyterLab deletes a subshell with the target's last comm, and ipykernel 7.4 stops
 * its thread with whatever it was sent a moment before: "Task was destroyed but it is pending!" in
 * red, in whichever cell ran last (36 of 40 times where a close is followed by the deletion).
 */
export function keepSubshells(kernel: Kernel.IKernelConnection): void {
  if (kernel.handleComms && kernel.supportsSubshells) {
    keepSubshell(kernel, METRICS);
    keepSubshell(kernel, CONTROL);
  }
}

/** As `keepSubshells`, for ipywidgets, which comes with us and has the same fault. */
export function keepSubshellsOfWidgets(kernel: Kernel.IKernelConnection): void {
  const keep = (): void => {
    if (!kernel.isDisposed && kernel.handleComms && kernel.supportsSubshells) {
      OF_WIDGETS.forEach((target) => keepSubshell(kernel, target));
    }
  };
  // a kernel that gives no information of itself has no subshells either, as far as is known
  kernel.info.then(keep, () => undefined);
}

/**
 * A restart ends every comm and every subshell. Of one that another connection requested, JupyterLab
 * is not notified here (`unnoticed`): it forgets a subshell with its last comm.
 */
export function forgetSubshells(kernel: Kernel.IKernelConnection, unnoticed: boolean): void {
  restarted.set(kernel, restartsOf(kernel) + 1);
  if (unnoticed) {
    keepers.get(kernel)?.forEach((comm) => comm.dispose());
  }
  keepers.delete(kernel);
  plainSubshells.delete(kernel.id);
}

function keepSubshell(kernel: Kernel.IKernelConnection, target: string): void {
  const kept = keepers.get(kernel) ?? new Map<string, Comm>();
  keepers.set(kernel, kept);
  if (!kept.has(target)) {
    kept.set(target, kernel.createComm(target));
  }
}

/** By kernel and target, the subshells of comms that JupyterLab knows nothing of. */
const plainSubshells = new Map<string, Map<string, Promise<string | null>>>();

/** The subshell of a target; null where there are none. Any connection to the kernel may use it. */
async function subshellOf(
  kernel: Kernel.IKernelConnection,
  target: string,
): Promise<string | null> {
  await kernel.info;
  if (!kernel.supportsSubshells || kernel.commsOverSubshells === 'disabled') {
    return null;
  }
  const known = plainSubshells.get(kernel.id) ?? new Map<string, Promise<string | null>>();
  plainSubshells.set(kernel.id, known);
  const subshell =
    known.get(target) ??
    kernel.requestCreateSubshell({}).done.then(({ content }) => content.subshell_id ?? null);
  known.set(target, subshell);
  const forget = (): void => {
    if (known.get(target) === subshell) {
      known.delete(target); // the next attempt queries again
    }
  };
  subshell.catch(forget);
  const found = await withinLimit(subshell);
  if (found === undefined) {
    forget();
    // one that comes late is the next attempt's, unless that has requested already
    subshell.then(
      () => known.has(target) || known.set(target, subshell),
      () => undefined,
    );
  }
  return found ?? null;
}

/** How long a subshell is waited for: it comes at once, or behind what the kernel is busy with. */
const SUBSHELL_MS = 10_000;

/**
 * The result of requesting a subshell, or undefined where nothing comes. A kernel whose second
 * connection is renewed while it restarts may answer nothing on its control channel from then on
 * (JupyterLab 4.6, ipykernel 7.4; debug requests stay unanswered, too): then the shell that runs
 * cells has to do, behind whatever cell runs.
 */
async function withinLimit<T>(requested: Promise<T>): Promise<T | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), SUBSHELL_MS);
  });
  try {
    return await Promise.race([requested, late]);
  } finally {
    clearTimeout(timer);
  }
}
