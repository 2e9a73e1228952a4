import { describe, expect, it } from 'vitest';
import type { Group } from '../src/graph/groups';
import { GraphState } from '../src/graph/state';
import { graphOf, residual } from './graph-data';

function after(before: GraphState, blocks: number): GraphState {
  const state = new GraphState(graphOf(residual(blocks)));
  state.lookLike(before);
  return state;
}

function closable(state: GraphState): Group {
  const found = state.tree.groups.find((group) => group.parent && state.open.has(group));
  if (!found) throw new Error('no module is open');
  return found;
}

describe('another capture in the same view', () => {
  it('has open and closed what was, selects what was, and is laid out alike', () => {
    const before = new GraphState(graphOf(residual(2)));
    const closed = closable(before);
    before.toggle(closed);
    before.select(closed);
    const state = after(before, 2);
    const twin = state.tree.groups.find(({ id }) => id === closed.id);
    expect(state.open.has(twin as Group)).toBe(false);
    expect(state.selected).toBe(twin);
    expect(state.layout.root.height).toBe(before.layout.root.height);
  });

  it('keeps a selected operation where there is the same one, and only there', () => {
    const before = new GraphState(graphOf(residual(2)));
    const [operation] = before.operations;
    before.select(operation ?? null);
    expect(after(before, 2).selected).toMatchObject({ id: 0, op: operation?.op });
    const other = graphOf(residual(2).map((one) => ({ ...one, op: `${one.op}_` })));
    const state = new GraphState(other);
    state.lookLike(before);
    expect(state.selected).toBeNull();
  });

  it('opens a model of another shape as its own first look would', () => {
    const state = after(new GraphState(graphOf(residual(2))), 5);
    expect(state.layout.boxes.size).toBeGreaterThan(2);
    expect(state.selected).toBeNull();
  });
});
