import type { Kernel } from '@jupyterlab/services';
import { describe, expect, it } from 'vitest';
import { CommChannel } from '../../src/connection/channel';

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
    expect(comms[0]?.opened).toEqual({ protocol: 1, client: 'me' });

    channel.send({ type: 'alive' });
    comms[0]?.speak({ type: 'hello', seq: 1 });
    await settled();
    expect(comms.map((one) => one.targetName)).toEqual(['workbench.metrics', 'workbench.control']);
    expect(comms[1]?.opened).toEqual({ protocol: 1, client: 'me' });
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
});
