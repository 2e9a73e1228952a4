import { describe, expect, it } from 'vitest';
import { sentence } from '../src/graph/dom';
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

  it('are the paths of modules, of a card the range it stands for', () => {
    expect(named('0')).toEqual(['layers.0']);
    const cards = state.tree.groups.filter(({ kind }) => kind === 'repeat');
    expect(cards.map((card) => fullName(card, state.record))).toEqual(['layers.0 … 4']);
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
