import { Signal } from '@lumino/signaling';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { Connection } from '../../src/connection/connection';

/** A comm that the kernel closes at once: it has no such target. */
function refusedComm() {
  const comm = {
    onClose: () => undefined,
    onMsg: () => undefined,
    isDisposed: false,
    open: () => setTimeout(() => comm.onClose()),
    close: () => undefined,
    dispose: () => undefined,
  };
  return comm;
}

describe('the connection to a kernel without Workbench', () => {
  const statusChanged = new Signal<object, string>({});
  const kernel = {
    handleComms: true,
    status: 'idle',
    info: Promise.resolve({}),
    supportsSubshells: false,
    registerCommTarget: vi.fn(),
    requestCommInfo: vi.fn(() => Promise.resolve({ content: { status: 'ok', comms: {} } })),
    createComm: vi.fn(refusedComm),
  };
  const settings = { refreshInterval: 0, maxPoints: 10, changed: new Signal<object, void>({}) };

  beforeEach(() => vi.clearAllMocks());

  function connect(source: string): Connection {
    const quiet = { connect: () => undefined };
    const panel = {
      context: { path: 'c.ipynb', ready: Promise.resolve() },
      content: { model: { cells: [{ type: 'code', sharedModel: { source } }] } },
      sessionContext: {
        session: { kernel },
        kernelChanged: quiet,
        statusChanged,
        connectionStatusChanged: quiet,
        iopubMessage: quiet,
      },
    };
    return new Connection(panel as never, settings as never);
  }

  it('is settled once the kernel has said that nothing was announced', async () => {
    const connection = connect('import torch');
    expect(connection.status).toBe('waiting');
    await vi.waitFor(() => expect(connection.status).toBe('absent'));
    expect(kernel.createComm).not.toHaveBeenCalled();
    connection.dispose();
  });

  it('is settled once the kernel has refused the channel, and says so', async () => {
    const connection = connect('import workbench as wb');
    const seen: string[] = [];
    connection.changed.connect(() => seen.push(connection.status));
    await vi.waitFor(() => expect(seen).toEqual(['absent']));
    expect(kernel.createComm).toHaveBeenCalledTimes(1);
    connection.dispose();
  });

  it('is settled by a restart', () => {
    const connection = connect('import torch');
    statusChanged.emit('restarting');
    expect(connection.status).toBe('absent');
    connection.dispose();
  });
});
