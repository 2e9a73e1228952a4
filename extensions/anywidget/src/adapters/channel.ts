/**
 * Opens the live channels for a widget: two comms of our own where the host can, the widget's own
 * messages where it cannot (`docs/architecture.md`, "The live channels").
 */
import { PROTOCOL, type Channel, type ChannelData, type Connect } from '@torch-workbench/views';
import {
  commManager,
  type CommManager,
  type CommMessage,
  type WidgetComm,
  type WidgetModel,
} from './host';

const RESTARTED = 'kernel restarted: run the cell again';
const DISCONNECTED = 'the connection to the kernel is lost, trying again';

/** How a store connects from inside a widget. */
export function widgetConnect(model: WidgetModel): Connect {
  return (client) => {
    const manager = commManager(model);
    return manager ? commChannel(manager, client) : Promise.resolve(modelChannel(model, client));
  };
}

type Closed = (reason: string, final?: boolean) => void;

async function commChannel(manager: CommManager, client: string): Promise<Channel> {
  const kernel = manager.kernel;
  if (kernel?.connectionStatus === 'disconnected') throw new Error(DISCONNECTED);
  const hello = { protocol: PROTOCOL, client };
  const control = await openComm(manager, 'workbench.control', hello);
  const metrics = await openComm(manager, 'workbench.metrics', hello);
  let onClose: Closed = () => undefined;
  const onStatus = (_: unknown, status: string): void => {
    if (['restarting', 'autorestarting', 'dead'].includes(status)) onClose(RESTARTED, true);
  };
  const onConnection = (_: unknown, status: string): void => {
    if (status === 'disconnected') onClose(DISCONNECTED);
  };
  kernel?.statusChanged?.connect(onStatus);
  kernel?.connectionStatusChanged?.connect(onConnection);
  // A kernel without Workbench answers by closing: it was restarted behind this page's back.
  metrics.on_close(() => onClose(RESTARTED, true));
  return {
    send: (data) => control.send(data),
    onMessage(callback) {
      metrics.on_msg(({ content, buffers }: CommMessage) => callback(content.data, buffers ?? []));
    },
    onClose: (callback) => (onClose = callback),
    close() {
      onClose = () => undefined;
      kernel?.statusChanged?.disconnect(onStatus);
      kernel?.connectionStatusChanged?.disconnect(onConnection);
      for (const comm of [control, metrics]) closeQuietly(comm);
    },
  };
}

/**
 * A comm that does not wait behind the running cell. Its subshell is started when it is made, and
 * what is sent before the subshell is there goes to the main shell: it is opened only then.
 */
async function openComm(manager: CommManager, target: string, hello: object): Promise<WidgetComm> {
  await manager.kernel?.info;
  if (!manager.kernel?.supportsSubshells) return manager._create_comm(target, undefined, hello);
  const comm = await manager._create_comm(target); // without data it is not opened
  const inner = comm.jsServicesComm;
  if (inner?.commsOverSubshells !== 'disabled') await inner?.subshellStarted;
  comm.open(hello);
  return comm;
}

/** Closing a comm of a kernel that is gone throws; no kernel is left to notify. */
function closeQuietly(comm: { close(): void }): void {
  try {
    comm.close();
  } catch {
    return;
  }
}

type Received = (data: ChannelData, buffers?: readonly (ArrayBuffer | ArrayBufferView)[]) => void;

function modelChannel(model: WidgetModel, client: string): Channel {
  let listener: Received | undefined;
  return {
    send: (data) => model.send(data),
    onMessage(callback) {
      listener = (data, buffers) => callback(data, buffers ?? []);
      model.on('msg:custom', listener as never);
      model.send({ type: 'connect', protocol: PROTOCOL, client });
    },
    onClose: () => undefined,
    close() {
      if (listener) model.off('msg:custom', listener as never);
    },
  };
}
