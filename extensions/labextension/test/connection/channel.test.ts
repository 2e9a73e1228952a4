import type { Kernel } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import { describe, expect, it, vi } from 'vitest';
import { CommChannel, forgetSubshells } from '../../src/connection/channel';

/** A kernel connection's comms as JupyterLab hands them out; the kernel behind them is played. */
class PlayedComm {
  isDisposed = false;
  opened: unknown = null;
  sent: unknown[] = [];
  saidGoodbye = false;
  onMsg: (message: unknown) => void = () => undefined;
  onClose: () => void = () => undefined;
  constructor(readonly targetName: string) {}
  open(data: unknown) {
    this.opened = data;
  }
  send(data: unknown) {
    this.sent.push(data);
  }
  close() {
    this.saidGoodbye = true;
    this.isDisposed = true;
  }
  dispose() {
    this.isDisposed = true;
  }
  speak(data: unknown, buffers: ArrayBuffer[] = []) {
    this.onMsg({ content: { data }, buffers });
  }
}

function played() {
  const comms: PlayedComm[] = [];
  const kernel = {
    handleComms: true,
    status: 'idle' as Kernel.Status,
    info: Promise.resolve(),
    supportsSubshells: false,
    createComm: (target: string) => {
      const comm = new PlayedComm(target);
      comms.push(comm);
      return comm;
    },
  };
  return { comms, kernel, connection: kernel as unknown as Kernel.IKernelConnection };
}

const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

describe('CommChannel', () => {
  it('opens the control comm once the kernel has spoken, as the same client', async () => {
    const { comms, connection } = played();
    const channel = await CommChannel.open(connection, 'me');
    expect(comms.map((one) => one.targetName)).toEqual(['workbench.metrics']);
    expect(comms[0]?.opened).toEqual({ protocol: 2, client: 'me' });

    channel.send({ type: 'alive' });
    comms[0]?.speak({ type: 'hello', seq: 1 });
    await settled();
    expect(comms.map((one) => one.targetName)).toEqual(['workbench.metrics', 'workbench.control']);
    expect(comms[1]?.opened).toEqual({ protocol: 2, client: 'me' });
    expect(comms[1]?.sent).toEqual([{ type: 'alive' }]);
    expect(comms[0]?.sent).toEqual([]);
  });

  it('hands over messages with their buffers', async () => {
    const { comms, connection } = played();
    const channel = await CommChannel.open(connection, 'me');
    const received: unknown[] = [];
    channel.onMessage((data, buffers) => received.push([data, buffers.length]));
    comms[0]?.speak({ type: 'curves' }, [new ArrayBuffer(8), new ArrayBuffer(8)]);
    expect(received).toEqual([[{ type: 'curves' }, 2]]);
  });

  it('leaves nothing behind in a kernel that refuses', async () => {
    const { comms, connection } = played();
    const channel = await CommChannel.open(connection, 'me');
    const reasons: unknown[] = [];
    channel.onClose((reason, final) => reasons.push([reason, final]));
    const metrics = comms[0] as PlayedComm;
    metrics.onClose();
    metrics.dispose();
    await settled();
    expect(reasons).toEqual([['the kernel closed the channel: run the cell again', true]]);
    expect(comms).toHaveLength(1);
    expect(metrics.saidGoodbye).toBe(false);
  });

  it('says goodbye to a living kernel and nothing to one that restarts', async () => {
    for (const status of ['idle', 'busy', 'restarting'] as const) {
      const { comms, kernel, connection } = played();
      const channel = await CommChannel.open(connection, 'me');
      comms[0]?.speak({ type: 'hello', seq: 1 });
      await settled();
      kernel.status = status;
      channel.close();
      expect(comms.map((one) => one.saidGoodbye)).toEqual(
        status === 'restarting' ? [false, false] : [true, true],
      );
      expect(comms.every((one) => one.isDisposed)).toBe(true);
    }
  });

  it('is closed, and so tried again, where the second comm cannot be opened', async () => {
    const { comms, kernel, connection } = played();
    const channel = await CommChannel.open(connection, 'me');
    const reasons: unknown[] = [];
    channel.onClose((reason, final) => reasons.push([reason, final]));
    kernel.createComm = () => {
      throw new Error('the kernel makes no more');
    };
    comms[0]?.speak({ type: 'hello', seq: 1 });
    await settled();
    expect(reasons).toEqual([['the kernel makes no more', undefined]]);
  });
});

/** A connection that JupyterLab lets have no comms: what is sent, and what the kernel answers. */
function secondConnection(supportsSubshells: boolean) {
  const sent: { header: { msg_type: string; subshell_id?: string }; content: object }[] = [];
  const kernel = {
    id: `kernel-${Math.random()}`,
    handleComms: false,
    status: 'idle',
    info: Promise.resolve(),
    supportsSubshells,
    username: 'me',
    clientId: 'page',
    isDisposed: false,
    disposed: new Signal<object, void>({}),
    iopubMessage: new Signal<object, unknown>({}),
    subshells: 0,
    requestCreateSubshell: () => {
      kernel.subshells += 1;
      const content = { status: 'ok', subshell_id: `shell-${kernel.subshells}` };
      return { done: Promise.resolve({ content }) };
    },
    createComm: () => {
      throw new Error('Comms are disabled on this kernel connection');
    },
    sendShellMessage: (message: (typeof sent)[number]) => sent.push(message),
  };
  const answer = (msg_type: string, comm_id: unknown, data: object): void =>
    kernel.iopubMessage.emit({
      header: { msg_type },
      channel: 'iopub',
      content: { comm_id, data },
      buffers: [],
    });
  const types = () => sent.map(({ header }) => header.msg_type);
  const content = (index: number) => sent[index]?.content as Record<string, unknown>;
  const connection = kernel as unknown as Kernel.IKernelConnection;
  return { kernel, connection, sent, answer, types, content };
}

describe('CommChannel over a second connection', () => {
  it('sends and hears the messages of comms itself', async () => {
    const { connection, answer, types, content, sent } = secondConnection(true);
    const channel = await CommChannel.open(connection, 'me');
    const received: unknown[] = [];
    channel.onMessage((data) => received.push(data));
    expect(content(0)).toMatchObject({
      target_name: 'workbench.metrics',
      data: { protocol: 2, client: 'me' },
    });
    answer('comm_msg', 'of the first notebook', { type: 'hello', seq: 9 });
    answer('comm_msg', content(0)['comm_id'], { type: 'hello', seq: 1 });
    await settled();
    channel.send({ type: 'alive' });
    expect(received).toEqual([{ type: 'hello', seq: 1 }]);
    expect(types()).toEqual(['comm_open', 'comm_open', 'comm_msg']);
    expect(content(2)).toEqual({ comm_id: content(1)['comm_id'], data: { type: 'alive' } });
    // commands go to a shell of their own, so that a Stop arrives while a cell blocks
    expect(sent.map(({ header }) => header.subshell_id)).toEqual(['shell-1', 'shell-2', 'shell-2']);

    channel.close();
    expect(types().slice(3)).toEqual(['comm_close', 'comm_close']);
    answer('comm_msg', content(0)['comm_id'], { type: 'late' });
    expect(received).toHaveLength(1);
  });

  it('uses the same subshells when it is opened again, and new ones after a restart', async () => {
    const { kernel, connection, sent } = secondConnection(true);
    const shells = (): unknown[] => sent.map(({ header }) => header.subshell_id);
    (await CommChannel.open(connection, 'me')).close();
    const channel = await CommChannel.open(connection, 'me');
    expect(shells()).toEqual(['shell-1', 'shell-1', 'shell-1']);
    forgetSubshells(connection, true);
    channel.close();
    await CommChannel.open(connection, 'me');
    // the new process is not notified of a comm of the one before
    expect(shells()).toEqual(['shell-1', 'shell-1', 'shell-1', 'shell-2']);
    expect(kernel.subshells).toBe(2);
  });

  it('uses the shell of cells where the kernel answers no request for another', async () => {
    const { kernel, connection, sent } = secondConnection(true);
    const shells = (): unknown[] => sent.map(({ header }) => header.subshell_id);
    const requested = vi.spyOn(kernel, 'requestCreateSubshell');
    vi.useFakeTimers();
    try {
      let answer: (reply: unknown) => void = () => undefined;
      const late = new Promise((resolve) => (answer = resolve));
      requested.mockReturnValueOnce({ done: late as Promise<never> });
      const opened = CommChannel.open(connection, 'me');
      await vi.runAllTimersAsync();
      (await opened).close();
      expect(shells()).toEqual([null, null]);
      answer({ content: { subshell_id: 'late' } });
      await vi.runAllTimersAsync();
      (await CommChannel.open(connection, 'me')).close();
      expect(shells().slice(2)).toEqual(['late', 'late']);
      expect(requested).toHaveBeenCalledOnce();
    } finally {
      vi.useRealTimers();
    }
  });

  it('requests a subshell anew after a request that was refused, as by a restart', async () => {
    const { kernel, connection, sent } = secondConnection(true);
    const requested = vi.spyOn(kernel, 'requestCreateSubshell');
    requested.mockReturnValueOnce({ done: Promise.reject(new Error('canceled')) });
    await expect(CommChannel.open(connection, 'me')).rejects.toThrow('canceled');
    await CommChannel.open(connection, 'me');
    expect(sent.map(({ header }) => header.subshell_id)).toEqual(['shell-1']);
  });

  it('opens a comm of its own where the subshell of JupyterLab’s does not start', async () => {
    const { kernel, connection, sent } = secondConnection(true);
    const comm = { subshellStarted: new Promise(() => undefined), dispose: vi.fn() };
    Object.assign(kernel, { handleComms: true, createComm: () => comm });
    vi.useFakeTimers();
    try {
      const opened = CommChannel.open(connection, 'me');
      await vi.runAllTimersAsync();
      await opened;
    } finally {
      vi.useRealTimers();
    }
    expect(comm.dispose).toHaveBeenCalled();
    expect(sent.map(({ header }) => header.subshell_id)).toEqual([null]);
  });

  it('is refused as on any other connection', async () => {
    const { connection, answer, content, sent } = secondConnection(false);
    const channel = await CommChannel.open(connection, 'me');
    const reasons: unknown[] = [];
    channel.onClose((reason, final) => reasons.push([reason, final]));
    answer('comm_close', content(0)['comm_id'], {});
    await settled();
    expect(reasons).toEqual([['the kernel closed the channel: run the cell again', true]]);
    expect(sent).toHaveLength(1);
    expect(sent[0]?.header.subshell_id).toBeNull();
  });
});
