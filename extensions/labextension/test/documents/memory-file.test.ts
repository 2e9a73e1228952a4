import { readFileSync } from 'node:fs';
import path from 'node:path';
import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import type { Overview } from '@torch-workbench/views/overview';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { MemoryFileView } from '../../src/documents/memory-file';
import { type IMemoryPart, ServerError } from '../../src/server';

// jsdom has neither; lumino's widgets derive from the one, views ask the other.
vi.hoisted(() => {
  vi.stubGlobal('DragEvent', class extends Event {});
});
vi.mock('@jupyterlab/ui-components', () => ({
  LabIcon: vi.fn(),
  MenuSvg: Object.assign(vi.fn(), { Renderer: vi.fn() }),
}));

HTMLCanvasElement.prototype.getContext = () => null;

const FIXTURES = path.resolve(import.meta.dirname, '../../../records/test/fixtures');
const RECORD = new Uint8Array(readFileSync(path.join(FIXTURES, 'memory.safetensors'))).buffer;

const LONG: Overview = {
  title: 'a.pickle',
  device: 'cuda:0',
  devices: [0],
  num_events: 5000,
  duration_us: 0,
  peak_position: 10,
  peak_bytes: 100,
  proposed: [0, 1000],
  most: 2000,
  position: [0],
  time_us: [0],
  bytes: [100],
};

type RequestedPart = IMemoryPart & { overview?: boolean };
type Answer = ArrayBuffer | Overview;

describe('a memory file in a tab', () => {
  const memoryRecord =
    vi.fn<(path: string, part: RequestedPart, signal: AbortSignal) => Promise<Answer>>();
  const get = vi.fn<(path: string, options: { content: boolean }) => Promise<object>>();
  const fileChanged = new Signal<object, void>({});
  let view: MemoryFileView;

  const open = async (name = 'f/a.pickle'): Promise<void> => {
    const context = { path: name, ready: Promise.resolve(), fileChanged };
    const contents = { localPath: (of: string) => of, get };
    const server = { memoryRecord, askMemory: vi.fn() };
    const commands = { execute: vi.fn() };
    const trans = nullTranslator.load('torch-workbench');
    view = new MemoryFileView(
      ...([context, server, contents, commands, trans] as unknown as ConstructorParameters<
        typeof MemoryFileView
      >),
    );
    document.body.append(view.node);
    await settle();
  };
  const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));
  const notice = (): HTMLElement => view.node.querySelector('.jp-Workbench-notice') as HTMLElement;
  const says = (): string => notice().querySelector('p')?.textContent ?? '';
  const press = async (label: string): Promise<void> => {
    const all = [...view.node.querySelectorAll('button')];
    all.find(({ textContent }) => textContent?.startsWith(label))?.click();
    await settle();
  };
  const isShown = (selector: string): boolean =>
    view.node.querySelector(selector)?.closest('.lm-mod-hidden') === null;
  const requests = (): RequestedPart[] => memoryRecord.mock.calls.map(([, part]) => part);

  beforeEach(() => {
    memoryRecord.mockReset();
    get.mockReset().mockResolvedValue({ size: 3 * 2 ** 20 });
  });
  afterEach(() => {
    view.dispose();
    document.body.replaceChildren();
  });

  it('says what is read and how large it is, and draws it', async () => {
    let give: (bytes: ArrayBuffer) => void = () => undefined;
    memoryRecord.mockReturnValue(new Promise((resolve) => (give = resolve)));
    await open();
    expect(says()).toMatch(/^Reading a\.pickle \(3(\.0)? M/);
    expect(get).toHaveBeenCalledWith('f/a.pickle', { content: false });
    give(RECORD);
    await settle();
    expect(view.record.kind).toBe('memory');
    expect(isShown('.wv-memory')).toBe(true);
    expect(view.place).toEqual({ folder: 'f', name: 'a' });
  });

  it('is read once as it opens, and anew when it changes on disk', async () => {
    memoryRecord.mockResolvedValue(RECORD);
    const opening = open();
    fileChanged.emit(undefined); // as JupyterLab says of a file that it did not know
    await opening;
    expect(requests()).toEqual([{}]);
    fileChanged.emit(undefined);
    await settle();
    expect(requests()).toEqual([{}, {}]);
  });

  it('lets a range of a long one be chosen, and another one after it', async () => {
    memoryRecord.mockResolvedValueOnce(LONG).mockResolvedValue(RECORD);
    await open();
    expect(isShown('.wv-overview')).toBe(true);
    await press('Open this range');
    expect(requests()[1]).toEqual({ device: 0, start: 0, end: 1000 });
    expect([isShown('.wv-overview'), isShown('.wv-memory')]).toEqual([false, true]);
    await press('Events 0 to 1,000 of 5,000');
    expect([isShown('.wv-overview'), isShown('.wv-memory')]).toEqual([true, false]);
    await press('Back');
    expect([isShown('.wv-overview'), isShown('.wv-memory')]).toEqual([false, true]);
    expect(requests()).toHaveLength(2);
  });

  it('opens the busiest of several devices, and offers the others', async () => {
    const two = { ...LONG, device: 'cuda:1', devices: [0, 1], num_events: 50 };
    memoryRecord.mockResolvedValueOnce(two).mockResolvedValue(RECORD);
    await open();
    expect(requests()).toEqual([{}, { device: 1 }]);
    const choice = view.node.querySelector<HTMLSelectElement>('select') as HTMLSelectElement;
    expect([choice.hidden, choice.value]).toEqual([false, '1']);
    choice.value = '0';
    choice.dispatchEvent(new Event('change'));
    expect(requests()[2]).toEqual({ device: 0 });
  });

  it('shows the sentence of a failure, and tries again', async () => {
    const broken = new ServerError('a.pickle holds no complete pickle.', 422, true);
    memoryRecord.mockRejectedValueOnce(broken).mockResolvedValue(RECORD);
    await open();
    expect(says()).toBe('a.pickle holds no complete pickle.');
    expect(notice().getAttribute('role')).toBe('alert');
    await press('Try again');
    expect(isShown('.wv-memory')).toBe(true);
  });

  it('is stopped, or closed, in the middle of it', async () => {
    memoryRecord.mockReturnValue(new Promise(() => undefined));
    await open();
    const [, , signal] = memoryRecord.mock.calls[0] ?? [];
    await press('Stop');
    expect(signal?.aborted).toBe(true);
    expect(says()).toBe('a.pickle was not read to its end.');
    await press('Read it');
    const [, , again] = memoryRecord.mock.calls[1] ?? [];
    view.dispose();
    expect(again?.aborted).toBe(true);
  });

  it('reads a record by itself where no server of ours is', async () => {
    memoryRecord.mockRejectedValue(new ServerError('not enabled', 404, false));
    get.mockImplementation((_, { content }) =>
      Promise.resolve(content ? { content: Buffer.from(RECORD).toString('base64') } : { size: 9 }),
    );
    await open('a.memory.safetensors');
    expect(view.record.kind).toBe('memory');
    view.dispose();
    await open('a.pickle');
    expect(says()).toBe('not enabled');
  });
});
