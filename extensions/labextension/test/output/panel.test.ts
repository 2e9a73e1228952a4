import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { EMPTY_MODEL, type KernelModel } from '@torch-workbench/views';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { state } from '../../../views/test/kernel/fake';
import { PANEL_MIME, PanelOutput } from '../../src/output/panel';
import type { IConnection, IWorkbenchConnections } from '../../src/tokens';

vi.hoisted(() => {
  // jsdom has none, and Lumino's drag and drop extends it when it is loaded
  globalThis.DragEvent ??= class extends MouseEvent {} as typeof DragEvent;
});

const KNOWS: KernelModel = {
  ...EMPTY_MODEL,
  connection: 'live',
  experiments: new Map([['e1', { state: state(), curves: new Map(), chart: null }]]),
};

/** A notebook on the page whose kernel says `model`. */
class Notebook {
  readonly node = document.body.appendChild(document.createElement('div'));
  readonly changed = new Signal<this, void>(this);
  readonly status = 'open';
  private readonly listeners = new Set<() => void>();

  constructor(private model: KernelModel) {}

  readonly store = {
    get: (): KernelModel => this.model,
    subscribe: (listener: () => void): (() => void) => {
      this.listeners.add(listener);
      return () => this.listeners.delete(listener);
    },
    send: () => Promise.resolve(),
  };

  say(model: KernelModel): void {
    this.model = model;
    this.listeners.forEach((listener) => listener());
  }

  get numListeners(): number {
    return this.listeners.size;
  }
}

class Notebooks {
  readonly changed = new Signal<this, void>(this);
  private readonly open: Notebook[] = [];

  add(notebook: Notebook): Notebook {
    this.open.push(notebook);
    this.changed.emit();
    return notebook;
  }

  all = (): readonly IConnection[] => this.open as unknown as IConnection[];

  forNode = (node: Node): IConnection | null =>
    (this.open.find((one) => one.node.contains(node)) ?? null) as unknown as IConnection | null;
}

class Picture extends Widget implements IRenderMime.IRenderer {
  renderModel(): Promise<void> {
    this.node.textContent = 'picture';
    return Promise.resolve();
  }
}

async function output(notebooks: Notebooks, data: unknown, host?: HTMLElement) {
  const panel = new PanelOutput(notebooks as unknown as IWorkbenchConnections, () => new Picture());
  if (host) Widget.attach(panel, host);
  await panel.renderModel({ data: { [PANEL_MIME]: data } } as unknown as IRenderMime.IMimeModel);
  return panel;
}

const shown = (panel: Widget): string =>
  panel.node.querySelector('.wb-panel') ? 'panel' : (panel.node.textContent ?? '');

describe('PanelOutput', () => {
  const data = { experiment: 'e1', name: 'digits' };
  let notebooks: Notebooks;

  beforeEach(() => void (notebooks = new Notebooks()));
  afterEach(() => document.body.replaceChildren());

  it('is the picture until the experiment is heard of, and releases everything', async () => {
    const notebook = notebooks.add(new Notebook(EMPTY_MODEL));
    const panel = await output(notebooks, data, notebook.node);
    expect(shown(panel)).toBe('picture');
    notebook.say(KNOWS);
    expect(shown(panel)).toBe('panel');
    expect(panel.widgets).toHaveLength(1);
    panel.dispose();
    expect(notebook.numListeners).toBe(0);
  });

  it('finds its notebook when that is known late, or when it is put on the page late', async () => {
    const late = new Notebook(KNOWS);
    const panel = await output(notebooks, data, late.node);
    expect(shown(panel)).toBe('picture');
    notebooks.add(late);
    expect(shown(panel)).toBe('panel');

    const detached = await output(notebooks, data);
    expect(shown(detached)).toBe('picture');
    Widget.attach(detached, late.node);
    expect(shown(detached)).toBe('panel');
  });

  it('is live in a tab of its own, over the notebook that knows the experiment', async () => {
    notebooks.add(new Notebook(EMPTY_MODEL));
    const tab = document.body.appendChild(document.createElement('div'));
    const panel = await output(notebooks, data, tab);
    expect(shown(panel)).toBe('picture');
    notebooks.add(new Notebook(KNOWS));
    expect(shown(panel)).toBe('panel');
  });

  it('stays the picture for an output that names no experiment', async () => {
    const notebook = notebooks.add(new Notebook(KNOWS));
    for (const data of [null, 'e1', { experiment: 7 }, { experiment: 'e2' }]) {
      expect(shown(await output(notebooks, data, notebook.node))).toBe('picture');
    }
  });
});
