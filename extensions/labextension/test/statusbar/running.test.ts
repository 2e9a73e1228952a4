import { nullTranslator } from '@jupyterlab/translation';
import type { ExperimentState } from '@torch-workbench/records';
import { expect, it, vi } from 'vitest';
import { state } from '../../../views/test/kernel/fake';
import { StatusItem } from '../../src/statusbar/item';
import { running } from '../../src/statusbar/running';
import type { IConnection } from '../../src/tokens';

vi.hoisted(() => {
  // jsdom has none, and Lumino's drag and drop extends it when it is loaded
  globalThis.DragEvent ??= class extends MouseEvent {} as typeof DragEvent;
});

function kernel(states: readonly ExperimentState[], selected: string | null = null): IConnection {
  const experiments = new Map(states.map((one) => [one.id, { state: one }]));
  return {
    experiment: selected,
    store: { get: () => ({ experiments }) },
  } as unknown as IConnection;
}

const one = (id: string, status: ExperimentState['status']): ExperimentState =>
  state({ id, name: `net ${id}`, status, step: 3, total_steps: 10, samples_per_s: null });

const ids = (states: readonly ExperimentState[]): string[] => states.map(({ id }) => id);

it('names what trains, the selected one before the newest', () => {
  const states = [one('a', 'training'), one('b', 'paused'), one('c', 'training')];
  expect(ids(running(kernel(states)))).toEqual(['c', 'a']);
  expect(ids(running(kernel(states, 'a')))).toEqual(['a', 'c']);
  expect(ids(running(kernel(states, 'b')))).toEqual(['c', 'a']);
});

it('names the newest of what is paused where nothing trains, and nothing that is over', () => {
  const states = [one('a', 'paused'), one('b', 'paused'), one('c', 'finished')];
  expect(ids(running(kernel(states)))).toEqual(['b']);
  expect(ids(running(kernel(states, 'a')))).toEqual(['a']);
  expect(running(null)).toEqual([]);
});

it('says which experiment it is that the line is about', () => {
  const item = new StatusItem(nullTranslator.load(''), () => undefined);
  item.showState(one('a', 'paused'));
  expect(item.node.textContent).toBe('net a: paused 3/10');
  item.showState(one('a', 'training'), [one('b', 'training')]);
  expect(item.node.textContent).toBe('net a: training 3/10 and 1 more');
  expect(item.node.title).toContain('net b: training 3/10');
  item.dispose();
});
