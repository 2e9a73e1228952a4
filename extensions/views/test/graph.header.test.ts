// @vitest-environment node
import { describe, expect, it } from 'vitest';
import { crossings, endBeside, gapBefore } from '../src/graph/header';
import type { Line } from '../src/graph/layout';

const line = (...points: number[]): Line => ({
  points,
  edges: [],
  bytes: 1,
  arrow: false,
  soft: false,
});

describe('the text of a header', () => {
  it('stands at the right end where no line comes in', () => {
    expect(gapBefore([], 0, 200, 100)).toBe(200);
    expect(gapBefore([50], 0, 200, 100)).toBe(200);
  });

  it('goes before a line that it would cross', () => {
    expect(gapBefore([0, 180], 10, 200, 100)).toBe(170);
    expect(gapBefore([180, 0], 10, 200, 100)).toBe(170);
    expect(gapBefore([0, 150, 180], 10, 200, 100)).toBe(140);
  });

  it('is left out, or the box grows, where it fits on no side of a line', () => {
    expect(gapBefore([0, 80], 10, 160, 100)).toBeNull();
    const end = endBeside([0, 80], 100);
    expect(gapBefore([0, 80], 10, end, 100)).toBe(end);
  });

  it('knows the lines that come in from those that begin inside', () => {
    expect(crossings([line(5, 40, 5, 90), line(70, 66, 70, 90)], 40)).toEqual([5]);
  });
});
