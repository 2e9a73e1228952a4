import { Signal } from '@lumino/signaling';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MemoryDiffTab } from '../../src/documents/memory-diff';
import { type IMemorySide, type ISources, keyOf, load } from '../../src/documents/memory-side';
import { ServerError } from '../../src/server';
import type { ConnectionStatus } from '../../src/tokens';

// jsdom has neither canvas nor drag events; lumino's widgets derive from the latter.
vi.hoisted(() => vi.stubGlobal('DragEvent', class extends Event {}));
HTMLCanvasElement.prototype.getContext = () => null;
vi.mock('@jupyterlab/ui-components', () => ({
  LabIcon: vi.fn(),
  MenuSvg: Object.assign(vi.fn(), { Renderer: vi.fn() }),
}));

const file = readFileSync(
  join(import.meta.dirname, '../../../records/test/fixtures/memory.safetensors'),
);
const RECORD = new Uint8Array(file).buffer;
const OVERVIEW = {
  device: 'cuda:1',
  devices: [0, 1],
  num_events: 100,
  most: 1000,
  proposed: [10, 60],
};
const CAPTURE: IMemorySide = {
  name: 'digits',
  label: 'step 3',
  notebook: 'a.ipynb',
  experiment: 'e1',
  capture: 'm1',
};
const trans = {
  __: (text: string, ...values: string[]) =>
    text.replace(/%(\d)/g, (_, at: string) => String(values[Number(at) - 1])),
};

let status: ConnectionStatus | null = 'open';
const changed = new Signal<object, void>({});
const memoryRecord = vi.fn();
const fetchRecord = vi.fn(() => Promise.resolve(RECORD));
const sources = {
  trans,
  server: { memoryRecord },
  contents: {
    localPath: (path: string) => path.replace(/^\w+:/, ''),
    get: () => Promise.resolve({ content: Buffer.from(RECORD).toString('base64') }),
  },
  connections: {
    changed,
    forHolder: () => (status === null ? null : { status, store: { fetchRecord } }),
  },
} as unknown as ISources;
const signal = new AbortController().signal;

beforeEach(() => {
  status = 'open';
  memoryRecord.mockReset();
  fetchRecord.mockClear();
});

describe('one side of a comparison', () => {
  it('of a file comes from the server, and is known by its name', async () => {
    memoryRecord.mockResolvedValue(RECORD);
    const loaded = await load({ path: 'runs/snapshot.pickle' }, sources, signal);
    expect(loaded).toEqual({ bytes: RECORD, name: 'snapshot.pickle' });
    expect(memoryRecord).toHaveBeenCalledWith('runs/snapshot.pickle', {}, signal);
  });

  it('of several devices is the busiest, and says so', async () => {
    memoryRecord.mockResolvedValueOnce(OVERVIEW).mockResolvedValueOnce(RECORD);
    const { name } = await load({ path: 'two.pickle' }, sources, signal);
    expect(name).toBe('two.pickle, cuda:1');
    expect(memoryRecord).toHaveBeenLastCalledWith('two.pickle', { device: 1 }, signal);
  });

  it('too long to be shown is the range around its peak', async () => {
    const long = { ...OVERVIEW, devices: [], num_events: 5000 };
    memoryRecord.mockResolvedValueOnce(long).mockResolvedValueOnce(RECORD);
    const { name } = await load({ path: 'long.pickle' }, sources, signal);
    expect(name).toBe('long.pickle, events 10 to 60');
    expect(memoryRecord).toHaveBeenLastCalledWith('long.pickle', { start: 10, end: 60 }, signal);
  });

  it('that the server cannot reach is read by the page, a record and no pickle', async () => {
    memoryRecord.mockRejectedValue(new ServerError('elsewhere', 501, true));
    const { bytes } = await load({ path: 'a.memory.safetensors' }, sources, signal);
    expect(bytes.byteLength).toBe(RECORD.byteLength);
    await expect(load({ path: 'a.pickle' }, sources, signal)).rejects.toThrow('elsewhere');
  });

  it('of a kernel is requested from it', async () => {
    expect((await load(CAPTURE, sources, signal)).name).toBe('digits · step 3');
    expect(fetchRecord).toHaveBeenCalledWith('e1', 'm1');
    status = null;
    await expect(load(CAPTURE, sources, signal)).rejects.toThrow('held by the kernel of a.ipynb');
  });

  it('differs from another range of the same file', () => {
    const part = { start: 0, end: 5 };
    expect(keyOf({ path: 'a' })).not.toBe(keyOf({ path: 'a', part }));
  });
});

describe('a tab with a comparison', () => {
  let tab: MemoryDiffTab;
  const execute = vi.fn(() => Promise.resolve());
  const sentence = (): string => tab.node.querySelector('p')?.textContent ?? '';
  const open = (b: IMemorySide): void => {
    const commands = { execute } as unknown as ConstructorParameters<typeof MemoryDiffTab>[2];
    tab = new MemoryDiffTab({ a: CAPTURE, b }, sources, commands);
  };

  afterEach(() => tab.dispose());

  it('shows both, whatever becomes of who held them', async () => {
    memoryRecord.mockResolvedValue(RECORD);
    open({ path: 'b.pickle' });
    expect(tab.title.caption).toBe('digits · step 3 → b.pickle · memory diff');
    await vi.waitFor(() => expect(tab.node.querySelector('.wv-memory-diff')).not.toBeNull());
    const heads = [...tab.node.querySelectorAll('.wv-head b')].map((head) => head.textContent);
    expect(heads).toEqual(['digits · step 3', 'b.pickle']);
    status = null;
    changed.emit();
    expect(fetchRecord).toHaveBeenCalledTimes(1);
  });

  it('waits for a kernel that is not there yet', async () => {
    memoryRecord.mockResolvedValue(RECORD);
    status = 'waiting';
    open({ path: 'b.pickle' });
    await vi.waitFor(() => expect(sentence()).toBe('Waiting for the kernel of a.ipynb…'));
    status = 'open';
    changed.emit();
    await vi.waitFor(() => expect(tab.node.querySelector('.wv-memory-diff')).not.toBeNull());
  });

  it('says what cannot be read, and does not request it again by itself', async () => {
    memoryRecord.mockRejectedValue(new Error('b.pickle is damaged'));
    open({ path: 'b.pickle' });
    await vi.waitFor(() => expect(sentence()).toBe('b.pickle is damaged'));
    changed.emit();
    expect(memoryRecord).toHaveBeenCalledTimes(1);
    tab.node.querySelector<HTMLElement>('.jp-Workbench-button')?.click();
    expect(memoryRecord).toHaveBeenCalledTimes(2);
  });
});
