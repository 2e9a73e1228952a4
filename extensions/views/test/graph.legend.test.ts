import { describe, expect, it } from 'vitest';
import { graphOf, type NodeSpec, type RecordSpec } from './graph-data';
import { buttonNamed, query, shown } from './graph-mounted';

/** The legend of a graph coloured by what a button is called. */
function legendOf(nodes: readonly NodeSpec[], by: string, spec: RecordSpec = {}): HTMLElement {
  const host = shown({ record: graphOf(nodes, spec), error: null });
  buttonNamed(host, by).click();
  return query(host, '.wv-legend');
}

const ticks = (legend: HTMLElement): string[] =>
  [...legend.querySelectorAll('.ticks span')].map(({ textContent }) => textContent ?? '');

describe('the legend', () => {
  it('has no scale and no bars where nothing was saved', () => {
    const legend = legendOf([{ op: 'a' }, { op: 'b', inputs: [0] }], 'Bytes');
    expect(legend.textContent).toContain('Nothing is saved for backward.');
    expect(legend.querySelector('.ramp')).toBeNull();
    expect(legend.textContent).not.toContain('full bar');
  });

  it('says each value once where four would not differ', () => {
    expect(ticks(legendOf([{ op: 'a', saved: 2 }], 'Bytes'))).toEqual(['0 B', '2 B']);
    expect(ticks(legendOf([{ op: 'a', saved: 900 }], 'Bytes'))).toEqual([
      '0 B',
      '100 B',
      '400 B',
      '900 B',
    ]);
  });

  it('shows one colour where all norms are alike', () => {
    const legend = legendOf(
      [
        { op: 'a', gradient: 0.5 },
        { op: 'b', inputs: [0], gradient: 0.5 },
        { op: 'c', inputs: [1], gradient: 1 },
      ],
      'Gradient norm',
    );
    expect(legend.textContent).toContain('0.5: all norms alike');
    expect(legend.querySelector('.ramp')).toBeNull();
  });

  it('says so where no norm is on a scale', () => {
    for (const one of [{ gradient: 0 }, { gradient: NaN, nonFinite: 3 }]) {
      const legend = legendOf(
        [
          { op: 'a', ...one },
          { op: 'b', inputs: [0], ...one },
        ],
        'Gradient',
      );
      expect(legend.textContent).toContain('No norm is finite and above zero.');
      expect(legend.querySelector('.ramp')).toBeNull();
    }
  });

  it('keeps its scale of times for one timed module', () => {
    const nodes = [
      { op: 'a', module: 'body' },
      { op: 'b', module: 'body', inputs: [0] },
    ];
    const legend = legendOf(nodes, 'Time', { seconds: { body: 0.009 } });
    expect(ticks(legend)).toEqual(['0', '1.0 ms', '4.0 ms', '9.0 ms']);
  });

  it('names the one dtype there is', () => {
    expect(legendOf([{ op: 'a' }], 'Dtype').querySelectorAll('.swatch')).toHaveLength(1);
  });
});
