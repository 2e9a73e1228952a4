import { nullTranslator } from '@jupyterlab/translation';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { WorkbenchServer } from '../../src/server';
import { TensorBoardPanel } from '../../src/tensorboard/panel';

// jsdom has neither; JupyterLab's components ask for both as they are loaded.
vi.hoisted(() => {
  vi.stubGlobal('DragEvent', class extends Event {});
  vi.stubGlobal('matchMedia', () => ({ matches: false, addEventListener: () => undefined }));
});

const board = { id: 'b', logdir: 'runs', url: '/workbench/tb/b/' };
const server = {
  startTensorBoard: () => Promise.resolve(board),
  dashboards: () => Promise.resolve([board]),
};
let panel: TensorBoardPanel;

beforeEach(async () => {
  panel = new TensorBoardPanel(
    'runs',
    server as unknown as WorkbenchServer,
    null,
    nullTranslator.load(''),
  );
  document.body.append(panel.node);
  await new Promise((resolve) => setTimeout(resolve));
});

afterEach(() => {
  panel.dispose();
  document.body.replaceChildren();
});

/** The frame has loaded a page; null is one that no script may look into. */
function load(page: string | null): void {
  const frame = panel.node.querySelector('iframe') as HTMLIFrameElement;
  const loaded = page === null ? null : new DOMParser().parseFromString(page, 'text/html');
  Object.defineProperty(frame, 'contentDocument', { value: loaded, configurable: true });
  frame.dispatchEvent(new Event('load'));
}

const message = (): string => panel.node.textContent ?? '';

describe('what a frame has loaded', () => {
  it('is TensorBoard where its page says so', () => {
    load('<title>TensorBoard</title><tb-webapp></tb-webapp>');
    expect(panel.state).toBe('running');
  });

  it('was requested with loss and accuracy above the rest', () => {
    const url = new URL(panel.node.querySelector('iframe')?.src ?? '');
    const pinned = JSON.parse(url.searchParams.get('pinnedCards') ?? '[]') as { tag: string }[];
    expect(pinned.map(({ tag }) => tag)).toEqual([
      'train/loss',
      'val/loss',
      'train/accuracy',
      'val/accuracy',
    ]);
    expect(url.searchParams.get('darkMode')).toBe('false');
  });

  it('is nothing where the browser refused it: no running TensorBoard', () => {
    load(null);
    expect(panel.state).toBe('failed');
    expect(message()).toContain('The browser refused to show TensorBoard inside this page');
    expect(message()).toContain('Try again');
  });

  it('is what our server says was wrong', () => {
    load('<title>Workbench</title><pre>TensorBoard on runs did not answer.</pre>');
    expect(panel.state).toBe('failed');
    expect(message()).toContain('TensorBoard on runs did not answer.');
  });

  it('is named where it is another page, as a login', () => {
    load('<title>Jupyter Server</title><form></form>');
    expect(panel.state).toBe('failed');
    expect(message()).toContain('“Jupyter Server”');
  });
});
