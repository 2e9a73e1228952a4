import { Signal } from '@lumino/signaling';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CaptureView } from '../../src/documents/capture';
import type { ConnectionStatus } from '../../src/tokens';

// jsdom has neither; lumino's widgets derive from the one, the flow below a graph asks the other.
vi.hoisted(() => {
  const observer = { observe: () => undefined, disconnect: () => undefined };
  vi.stubGlobal('DragEvent', class extends Event {});
  vi.stubGlobal(
    'IntersectionObserver',
    vi.fn(() => observer),
  );
});
vi.mock('@jupyterlab/apputils', () => ({ Notification: { error: vi.fn() } }));
vi.mock('@jupyterlab/ui-components', () => ({
  LabIcon: vi.fn(),
  MenuSvg: Object.assign(vi.fn(), { Renderer: vi.fn() }),
}));

const ADDRESS = {
  kind: 'graph',
  notebook: 'a/c.ipynb',
  experiment: 'e1',
  capture: 'g1',
  name: 'watched',
  label: 'step 1',
} as const;

describe('a tab whose capture is in no kernel', () => {
  let status: ConnectionStatus | null;
  let view: CaptureView;
  let path = 'a/c.ipynb';
  const kernelId = 'k1';
  const changed = new Signal<object, void>({});
  const execute = vi.fn(() => Promise.resolve());
  let experiments = new Map<string, unknown>();
  const fetchRecord = vi.fn(() => new Promise(() => undefined));
  const store = {
    subscribe: () => () => undefined,
    get: () => ({ experiments }),
    fetchRecord,
  };
  const connections = {
    changed,
    forHolder: () =>
      status === null ? null : { status, path, kernelId, store: status === 'open' ? store : null },
  };
  const trans = {
    __: (text: string, ...values: string[]) =>
      text.replace(/%(\d)/g, (_, at: string) => String(values[Number(at) - 1])),
  };
  const sentence = (): string => view.node.querySelector('p')?.textContent ?? '';
  const button = (): HTMLButtonElement =>
    view.node.querySelector('.jp-Workbench-button') as HTMLButtonElement;
  const enter = (next: ConnectionStatus | null): void => {
    status = next;
    changed.emit();
  };

  beforeEach(() => {
    status = 'waiting';
    experiments = new Map();
    execute.mockClear();
    fetchRecord.mockClear();
    view = new CaptureView(ADDRESS, connections as never, { execute } as never, trans as never);
  });
  afterEach(() => view.dispose());

  it('waits while the kernel has not answered, and no longer', () => {
    expect(sentence()).toBe('Waiting for the kernel of a/c.ipynb…');
    expect(button().hidden).toBe(true);
    enter('absent');
    expect(sentence()).toContain('a/c.ipynb was restarted or has not imported Workbench');
    button().click();
    expect(execute).toHaveBeenCalledWith('docmanager:open', { path: 'a/c.ipynb' });
  });

  it('follows its notebook to another name, by the kernel that holds the capture', () => {
    view.dispose();
    const address = { ...ADDRESS, kernel: kernelId };
    view = new CaptureView(address, connections as never, { execute } as never, trans as never);
    const saved = vi.fn();
    view.addressChanged.connect(saved);
    path = 'b/renamed.ipynb';
    changed.emit();
    expect(view.address.notebook).toBe('b/renamed.ipynb');
    expect(view.node.dataset['workbenchNotebook']).toBe('b/renamed.ipynb');
    expect(view.title.caption).toContain('captured in b/renamed.ipynb');
    expect(saved).toHaveBeenCalledOnce();
    path = 'a/c.ipynb';
  });

  it('queries as soon as the kernel can be queried', () => {
    enter('absent');
    enter('open');
    expect(fetchRecord).toHaveBeenCalledWith('e1', 'g1');
  });

  it('says in its bar why nothing else can be shown', () => {
    const note = (): string => view['bar'].slots.lead?.[0]?.lastChild?.textContent ?? '';
    enter('open');
    expect(note()).toBe('');
    enter('absent');
    expect(note()).toBe('kernel gone');
    enter('lost');
    expect(note()).toBe('reconnecting');
    enter(null);
    expect(note()).toBe('notebook closed');
    experiments = new Map([['e2', { state: { captures: [] } }]]);
    enter('open');
    expect(note()).toBe('experiment gone');
    expect(view.gone?.sentence).toContain(
      'This experiment is no longer in the kernel of a/c.ipynb',
    );
  });
});
