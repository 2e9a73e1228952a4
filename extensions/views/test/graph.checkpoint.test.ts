/** What checkpointing frees, module by module, against the figures of the Python side. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { GRAPH_RECORD, readRecordAs } from '@torch-workbench/records';
import { describe, expect, it } from 'vitest';
import type { Group } from '../src/graph/groups';
import { GraphState } from '../src/graph/state';

const fixture = (name: string): Uint8Array =>
  new Uint8Array(readFileSync(join(import.meta.dirname, 'fixtures', `checkpoint-${name}`)));

function figures(name: string): [string, number, number][] {
  const record = readRecordAs(GRAPH_RECORD, fixture(`${name}.safetensors`));
  const freed = JSON.parse(new TextDecoder().decode(fixture(`${name}.json`))) as object;
  const state = new GraphState(record);
  const isOnce = ({ path }: Group): boolean =>
    state.tree.groups.filter((group) => group.kind === 'module' && group.path === path).length ===
    1;
  const modules = state.tree.groups.filter((group) => group.kind === 'module' && group.cls);
  return modules.filter(isOnce).map((group) => {
    const expected = Number((freed as Record<string, number>)[group.path]);
    return [group.path, state.checkpoint(group)?.freed ?? 0, Math.max(0, expected)];
  });
}

describe('the checkpoint estimate', () => {
  it.each(['conv_net', 'transformer'])('of %s is what Python says of it', (name) => {
    const found = figures(name);
    expect(found.length).toBeGreaterThan(3);
    expect(found.filter(([, freed]) => freed > 0).length).toBeGreaterThan(1);
    expect(found.filter(([, freed, expected]) => freed !== expected)).toEqual([]);
  });
});
