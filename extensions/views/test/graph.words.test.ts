import { describe, expect, it } from 'vitest';
import { sentence } from '../src/graph/dom';
import { formatMarks } from '../src/graph/format';
import { fullName } from '../src/graph/full-name';
import { GraphState } from '../src/graph/state';
import { graphOf, residual } from './graph-data';

describe('names in sentences', () => {
  const state = new GraphState(graphOf(residual(5)));
  const named = (name: string): string[] => {
    const items = [...state.tree.groups, ...state.operations];
    const found = items.filter(
      (item) => (item.kind === 'operation' ? item.name : item.title) === name,
    );
    return found.map((item) => fullName(item, state.record));
  };

  it('are the paths of modules, of a rolled-up box the range it stands for', () => {
    expect(named('0')).toEqual(['layers.0']);
    const groups = state.tree.groups.filter(({ kind }) => kind === 'repeat');
    expect(groups.map((card) => fullName(card, state.record))).toEqual(['layers.0 … 4']);
    expect(named('stem')).toEqual(['stem']);
    expect(fullName(state.tree.root, state.record)).toBe('Net');
  });

  it('say the module of a call inside a larger one', () => {
    expect(named('conv')[0]).toBe('conv in layers.0');
  });
});

describe('sentences of a record', () => {
  const shown = (text: string): string => {
    const host = document.createElement('p');
    host.append(...sentence(text));
    return host.innerHTML;
  };

  it('set what stands between backticks as code, and nothing as markup', () => {
    expect(shown('its module `fc` did\nnot run')).toBe('its module <code>fc</code> did not run');
    expect(shown('`<img src=x>`')).toBe('<code>&lt;img src=x&gt;</code>');
    expect(shown('one ` alone')).toBe('one ` alone');
  });
});

describe('marks of an axis of bytes', () => {
  const upTo = (top: number): string[] => formatMarks([1, 2, 3, 4].map((part) => (part * top) / 4));
  it('have one unit and as many decimals as one of them needs', () => {
    const gib = 1024 ** 3;
    expect(upTo(3.2 * gib)).toEqual(['0.8 GiB', '1.6 GiB', '2.4 GiB', '3.2 GiB']);
    expect(upTo(gib)).toEqual(['0.25 GiB', '0.50 GiB', '0.75 GiB', '1.00 GiB']);
    expect(upTo(160 * 1024 ** 2)).toEqual(['40 MiB', '80 MiB', '120 MiB', '160 MiB']);
    expect(upTo(4)).toEqual(['1 B', '2 B', '3 B', '4 B']);
  });
});
