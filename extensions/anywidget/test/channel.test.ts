import { describe, expect, it, vi } from 'vitest';
import { widgetConnect } from '../src/adapters/channel';
import type { CommMessage, WidgetComm, WidgetModel } from '../src/adapters/host';
import { adoptStyle } from '../src/adapters/style';

type Slot = (sender: unknown, value: string) => void;

/** A signal as JupyterLab's kernels have it. */
class FakeSignal {
  readonly slots = new Set<Slot>();
  readonly connect = (slot: Slot): unknown => this.slots.add(slot);
  readonly disconnect = (slot: Slot): unknown => this.slots.delete(slot);
  emit(value: string): void {
    for (const slot of [...this.slots]) slot(null, value);
  }
}

class FakeComm implements WidgetComm {
  readonly sent: unknown[] = [];
  closed = false;
  deliver: (message: CommMessage) => void = () => undefined;
  hangUp: () => void = () => undefined;
  constructor(
    readonly target: string,
    public greeting: unknown,
    readonly jsServicesComm?: WidgetComm['jsServicesComm'],
  ) {}
  open(data: unknown): void {
    this.greeting = data;
  }
  readonly send = (data: unknown): unknown => this.sent.push(data);
  on_msg(callback: (message: CommMessage) => void): void {
    this.deliver = callback;
  }
  on_close(callback: () => void): void {
    this.hangUp = callback;
  }
  close(): void {
    this.closed = true;
  }
}

function modelWith(manager: unknown): WidgetModel & { handlers: Map<string, unknown> } {
  const handlers = new Map<string, unknown>();
  return {
    handlers,
    widget_manager: manager,
    get: () => '',
    set: () => undefined,
    save_changes: () => undefined,
    on: (event, callback) => void handlers.set(event, callback),
    off: (event) => void handlers.delete(event),
    send: vi.fn(),
  };
}

function lab(): { model: WidgetModel; comms: FakeComm[]; status: FakeSignal } {
  const comms: FakeComm[] = [];
  const status = new FakeSignal();
  const kernel = { connectionStatus: 'connected', statusChanged: status };
  const create = (target: string, _: unknown, data: unknown): Promise<FakeComm> => {
    comms.push(new FakeComm(target, data));
    return Promise.resolve(comms.at(-1) as FakeComm);
  };
  return { model: modelWith({ _create_comm: create, kernel }), comms, status };
}

describe('in JupyterLab', () => {
  it('opens a comm when its subshell is there, so that no running cell holds it up', async () => {
    const started: (() => void)[] = [];
    const comms: FakeComm[] = [];
    const create = (target: string, _?: string, data?: unknown): Promise<FakeComm> => {
      const subshellStarted = new Promise<void>((resolve) => started.push(resolve));
      comms.push(new FakeComm(target, data, { subshellStarted }));
      return Promise.resolve(comms.at(-1) as FakeComm);
    };
    const kernel = { connectionStatus: 'connected', supportsSubshells: true };
    const opening = widgetConnect(modelWith({ _create_comm: create, kernel }))('abc');
    await vi.waitFor(() => expect(comms).toHaveLength(1));
    expect(comms[0]?.greeting).toBeUndefined();
    started[0]?.();
    await vi.waitFor(() => expect(comms).toHaveLength(2));
    expect(comms[0]?.greeting).toEqual({ protocol: 2, client: 'abc' });
    started[1]?.();
    await opening;
    expect(comms[1]?.greeting).toEqual({ protocol: 2, client: 'abc' });
  });

  it('does not wait for subshells that the settings turned off', async () => {
    const comms: FakeComm[] = [];
    const inner = { commsOverSubshells: 'disabled', subshellStarted: new Promise<void>(() => 0) };
    const create = (target: string): Promise<FakeComm> => {
      comms.push(new FakeComm(target, undefined, inner));
      return Promise.resolve(comms.at(-1) as FakeComm);
    };
    const kernel = { connectionStatus: 'connected', supportsSubshells: true };
    await widgetConnect(modelWith({ _create_comm: create, kernel }))('abc');
    expect(comms.map((comm) => comm.greeting)).toEqual(
      Array(2).fill({ protocol: 2, client: 'abc' }),
    );
  });

  it('opens both comms with one client, and commands travel on the control comm alone', async () => {
    const { model, comms } = lab();
    const channel = await widgetConnect(model)('abc');
    const greeting = { protocol: 2, client: 'abc' };
    expect(comms.map((comm) => [comm.target, comm.greeting])).toEqual([
      ['workbench.control', greeting],
      ['workbench.metrics', greeting],
    ]);
    channel.send({ type: 'alive' });
    expect(comms.map((comm) => comm.sent)).toEqual([[{ type: 'alive' }], []]);
    const heard = vi.fn();
    channel.onMessage(heard);
    const buffers = [new DataView(new ArrayBuffer(4))];
    comms[1]?.deliver({ content: { data: { type: 'hello' } }, buffers });
    expect(heard).toHaveBeenCalledWith({ type: 'hello' }, buffers);
  });

  it('ends for good when the kernel restarts, and leaves no listener behind', async () => {
    const { model, comms, status } = lab();
    const channel = await widgetConnect(model)('abc');
    const closed = vi.fn();
    channel.onClose(closed);
    status.emit('busy');
    expect(closed).not.toHaveBeenCalled();
    status.emit('restarting');
    expect(closed).toHaveBeenCalledWith('kernel restarted: run the cell again', true);
    channel.close();
    expect(status.slots.size).toBe(0);
    expect(comms.every((comm) => comm.closed)).toBe(true);
  });

  it('does not open comms while the server cannot be reached', async () => {
    const kernel = { connectionStatus: 'disconnected' };
    const create = vi.fn();
    const model = modelWith({ _create_comm: create, kernel });
    await expect(widgetConnect(model)('abc')).rejects.toThrow('connection to the kernel is lost');
    expect(create).not.toHaveBeenCalled();
  });
});

describe('elsewhere', () => {
  it("speaks over the widget's own messages", async () => {
    const model = modelWith(undefined);
    const channel = await widgetConnect(model)('abc');
    const heard = vi.fn();
    channel.onMessage(heard);
    expect(model.send).toHaveBeenCalledWith({ type: 'connect', protocol: 2, client: 'abc' });
    (model.handlers.get('msg:custom') as (data: unknown) => void)({ type: 'hello' });
    expect(heard).toHaveBeenCalledWith({ type: 'hello' }, []);
    channel.close();
    expect(model.handlers.size).toBe(0);
  });
});

describe('styles', () => {
  it('are added once to the root a widget is in, and replaced by a newer text', () => {
    const host = document.body.appendChild(document.createElement('div'));
    const inside = host.attachShadow({ mode: 'open' }).appendChild(document.createElement('p'));
    adoptStyle(inside, 'panel', '.a {}');
    adoptStyle(inside, 'panel', '.b {}');
    const styles = [...(host.shadowRoot?.querySelectorAll('style') ?? [])];
    expect(styles.map((style) => style.textContent)).toEqual(['.b {}']);
    expect(document.head.querySelector('[data-id="workbench-style-panel"]')).toBeNull();
  });
});
