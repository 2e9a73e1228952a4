import { Signal } from '@lumino/signaling';
import { beforeEach, describe, expect, it } from 'vitest';
import { WorkbenchConnections } from '../../src/connection/service';

const quiet = { connect: () => undefined };

/** An open notebook without a kernel. */
function notebook(path: string) {
  return {
    context: { path, ready: Promise.resolve(), pathChanged: quiet },
    node: document.createElement('div'),
    disposed: quiet,
    sessionContext: {
      session: null,
      kernelChanged: quiet,
      statusChanged: quiet,
      connectionStatusChanged: quiet,
      iopubMessage: quiet,
    },
  };
}

/** A tab of the main area with a capture in it. */
function captureOf(path: string) {
  const node = document.createElement('div');
  node.innerHTML = '<div data-workbench-experiment="e1"></div>';
  node.firstElementChild?.setAttribute('data-workbench-notebook', path);
  return { node };
}

describe('the current one of two notebooks', () => {
  const left = notebook('left.ipynb');
  const right = notebook('right.ipynb');
  const tracker = {
    currentWidget: right,
    forEach: (each: (panel: object) => void) => [left, right].forEach(each),
    widgetAdded: quiet,
    currentChanged: new Signal<object, void>({}),
  };
  let connections: WorkbenchConnections;
  const settings = { refreshInterval: 0, maxPoints: 10, changed: new Signal<object, void>({}) };
  const current = (): string | undefined => connections.current?.path;
  const lookAt = (tab: object): void => connections.lookAt(tab as never);

  beforeEach(() => {
    connections = new WorkbenchConnections(tracker as never, settings as never);
  });

  it('of something held is that to its kernel, whatever its notebook is called by now', () => {
    const [one, other] = connections.all();
    Object.defineProperty(one, 'kernelId', { value: 'k1' });
    Object.defineProperty(other, 'kernelId', { value: 'k2' });
    const holder = (notebook: string, kernel?: string) =>
      connections.forHolder({ notebook, kernel })?.path;
    expect(holder('before.ipynb', 'k1')).toBe('left.ipynb');
    expect(holder('left.ipynb', 'k2')).toBe('right.ipynb');
    expect(holder('left.ipynb')).toBe('left.ipynb');
    expect(holder('left.ipynb', 'k3')).toBe('left.ipynb');
    expect(holder('before.ipynb', 'k3')).toBeUndefined();
  });

  it('is the one whose capture is looked at, until a notebook is', () => {
    const notified: (string | undefined)[] = [];
    connections.currentChanged.connect((_, connection) => notified.push(connection?.path));
    expect(current()).toBe('right.ipynb');
    lookAt(captureOf('left.ipynb'));
    expect(current()).toBe('left.ipynb');
    lookAt({ node: document.createElement('div') });
    expect(current()).toBe('left.ipynb');
    tracker.currentChanged.emit();
    expect(current()).toBe('right.ipynb');
    lookAt(captureOf('left.ipynb'));
    lookAt(right);
    expect(current()).toBe('right.ipynb');
    expect(notified).toEqual(['left.ipynb', 'right.ipynb', 'left.ipynb', 'right.ipynb']);
  });

  it('stays where it is for a capture of a notebook that is closed', () => {
    lookAt(captureOf('closed.ipynb'));
    expect(current()).toBe('right.ipynb');
  });
});
