import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { nullTranslator } from '@jupyterlab/translation';
import { afterEach, expect, it, vi } from 'vitest';
import { PROGRESS_MIME, ProgressOutput } from '../../src/output/progress';
import type { IConnection } from '../../src/tokens';

vi.hoisted(() => {
  // jsdom has none, and Lumino's drag and drop extends it when it is loaded
  globalThis.DragEvent ??= class extends MouseEvent {} as typeof DragEvent;
});

const trans = nullTranslator.load('torch-workbench');
let output: ProgressOutput;
afterEach(() => output.dispose());

function shown(
  kernel: { status: string; interrupt: () => Promise<void> } | null,
  executionState = 'idle',
): HTMLElement {
  const cell = { node: document.createElement('div'), model: { executionState } };
  const panel = { sessionContext: { session: { kernel } }, content: { widgets: [cell] } };
  const connection = { panel };
  output = new ProgressOutput({ forNode: () => connection as unknown as IConnection }, trans);
  cell.node.append(output.node);
  return output.node;
}

async function report(data: unknown): Promise<void> {
  await output.renderModel({
    data: { [PROGRESS_MIME]: data },
  } as unknown as IRenderMime.IMimeModel);
}

it('says what is measured, and keeps its button from one report to the next', async () => {
  const node = shown(null);
  await report({ what: 'round 3 of 15: bf16', share: 0.25, elapsed: 75 });
  const button = node.querySelector('button');
  expect(node.querySelector('progress')?.value).toBe(0.25);
  expect(node.textContent).toContain('25 %  ·  round 3 of 15: bf16  ·  1 min 15 s');
  await report({ what: 'round 4 of 15: bf16', share: 7, elapsed: 'no number' });
  expect(node.querySelector('progress')?.value).toBe(1);
  expect(node.textContent).toContain('round 4 of 15: bf16');
  expect(node.querySelector('button')).toBe(button);
});

it('interrupts the kernel once', async () => {
  const interrupt = vi.fn(() => Promise.resolve());
  const button = shown({ status: 'busy', interrupt }).querySelector('button');
  button?.click();
  button?.click();
  await vi.waitFor(() => expect(output.node.textContent).toContain('Stopping'));
  expect(interrupt).toHaveBeenCalledTimes(1);
});

it('interrupts a kernel that calls itself idle because it answered something beside the cell', async () => {
  const interrupt = vi.fn(() => Promise.resolve());
  shown({ status: 'idle', interrupt }, 'running').querySelector('button')?.click();
  await vi.waitFor(() => expect(interrupt).toHaveBeenCalledTimes(1));
});

it('can be pressed again where the kernel could not be reached', async () => {
  const interrupt = vi.fn(() => Promise.reject(new Error('no answer')));
  const button = shown({ status: 'busy', interrupt }).querySelector('button');
  button?.click();
  await vi.waitFor(() => expect(output.node.textContent).toContain('interrupted: no answer'));
  expect(button?.disabled).toBe(false);
});

it('interrupts nothing where nothing is measured any more', () => {
  const interrupt = vi.fn(() => Promise.resolve());
  const node = shown({ status: 'idle', interrupt });
  node.querySelector('button')?.click();
  expect(interrupt).not.toHaveBeenCalled();
  expect(node.textContent).toContain('The measurement is no longer running.');
});
