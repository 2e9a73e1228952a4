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
  const quiet = { connect: () => undefined, disconnect: () => undefined };
  const sent: string[] = [];
  const kernelChanged = new Signal<object, void>({});
  const iopubMessage = new Signal<object, object>({});
  const kernel = {
    handleComms: true,
    status: 'idle',
    info: Promise.resolve({}),
    supportsSubshells: false,
    registerCommTarget: vi.fn(),
    requestCommInfo: vi.fn(() => Promise.resolve({ content: { status: 'ok', comms: {} } })),
    createComm: vi.fn(refusedComm),
    disposed: quiet,
    iopubMessage: quiet,
    sendShellMessage: ({ header }: { header: { msg_type: string } }) => sent.push(header.msg_type),
  };
  const settings = { refreshInterval: 0, maxPoints: 10, changed: new Signal<object, void>({}) };

  beforeEach(() => vi.clearAllMocks());

  function connect(source: string, to: object = kernel): Connection {
    const panel = {
      context: {
        path: 'c.ipynb',
        ready: Promise.resolve(),
        pathChanged: new Signal<object, void>({}),
      },
      content: { model: { cells: [{ type: 'code', sharedModel: { source } }] } },
      sessionContext: {
        session: { kernel: to },
        kernelChanged,
        statusChanged,
        connectionStatusChanged: quiet,
        iopubMessage,
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

  it('keeps the subshells of widgets, once a process, whether Workbench is there or not', async () => {
    const createComm = vi.fn((target: string) => ({ targetName: target }));
    const connection = connect('import torch', { ...kernel, supportsSubshells: true, createComm });
    const kept = (): string[] => createComm.mock.calls.map(([target]) => target);
    const ofWidgets = ['jupyter.widget.control', 'jupyter.widget'];
    await vi.waitFor(() => expect(kept()).toEqual(ofWidgets));
    statusChanged.emit('idle');
    statusChanged.emit('restarting');
    statusChanged.emit('idle');
    await vi.waitFor(() => expect(kept()).toEqual([...ofWidgets, ...ofWidgets]));
    connection.dispose();
  });

  it('is settled by a restart', () => {
    const connection = connect('import torch');
    statusChanged.emit('restarting');
    expect(connection.status).toBe('absent');
    kernelChanged.emit();
    expect(connection.status).toBe('absent');
    connection.dispose();
  });

  /** A message that reaches every connection to the kernel. */
  function hear(msg_type: string, session: string, content: object = {}): void {
    iopubMessage.emit({ header: { msg_type, session }, parent_header: { msg_id: 'm' }, content });
  }

  it('hears of Workbench where JupyterLab lets it have no comms', async () => {
    const second = connect('import torch', { ...kernel, handleComms: false });
    await vi.waitFor(() => expect(second.status).toBe('absent'));
    const changes: string[] = [];
    second.changed.connect(() => changes.push(second.status));
    hear('comm_open', 'process', { target_name: 'jupyter.widget' });
    expect(sent).toEqual([]);
    hear('comm_open', 'process', { target_name: 'workbench.presence' });
    await vi.waitFor(() => expect(sent).toEqual(['comm_open']));
    second.dispose();
  });

  it('is settled by a restart that another connection requested', () => {
    const connection = connect('import torch');
    hear('status', 'process');
    expect(connection.status).toBe('waiting');
    hear('status', 'process');
    expect(connection.status).toBe('waiting');
    hear('status', 'another process');
    expect(connection.status).toBe('absent');
    connection.dispose();
  });

  it('says why it waits', async () => {
    const broken = { ...kernel, createComm: () => Promise.reject(new Error('no more comms')) };
    const connection = connect('import workbench as wb', broken);
    expect(connection.detail).toBe('');
    await vi.waitFor(() => expect(connection.detail).toBe('no more comms'));
    expect(connection.status).toBe('waiting');
    connection.dispose();
  });
});
