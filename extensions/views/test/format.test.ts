import { describe, expect, it } from 'vitest';
import * as format from '../src/format';

describe('figures', () => {
  it.each([
    [0, '0'],
    [0.312, '0.312'],
    [412, '412'],
    [1900, '1.9k'],
    [12_345, '12.3k'],
    [999_900, '1M'],
    [8_880_000, '8.88M'],
  ])('%d reads %s', (value, text) => expect(format.short(value)).toBe(text));

  it.each([
    [48, '48 s'],
    [90, '1 min 30 s'],
    [120, '2 min'],
    [7_500, '2 h 5 min'],
    [-3, '0 s'],
  ])('%d seconds last %s', (value, text) => expect(format.duration(value)).toBe(text));

  it.each([
    [341 * 2 ** 20, '341 MiB'],
    [1.2 * 2 ** 20, '1.2 MiB'],
    [186 * 1024, '186 KiB'],
    [2 ** 20, '1 MiB'],
    [12, '12 B'],
  ])('%d bytes are %s', (value, text) => expect(format.bytes(value)).toBe(text));

  it.each([
    [0, '0'],
    [999, '999'],
    [1000, '1,000'],
    [48_001, '48,001'],
    [1_234_567, '1,234,567'],
    [-1042, '-1,042'],
  ])('the count %d reads %s', (value, text) => expect(format.count(value)).toBe(text));

  it('keeps a learning rate as it is written, and reads what people type', () => {
    expect(format.learningRate(0.001)).toBe('1.0e-3');
    expect(format.learningRate(null)).toBe('');
    expect(format.parseNumber(' 3e-4 ')).toBe(3e-4);
    expect(format.parseNumber('0,5')).toBe(0.5);
    expect(format.parseNumber('fast')).toBeNull();
    expect(format.parseNumber('')).toBeNull();
  });

  it('has a true minus and two digits of a loss', () => {
    expect(format.digits(-1.5)).toBe('−1.5');
    expect(format.metric(1.2345)).toBe('1.23');
    expect(format.metric(0.00321)).toBe('3.2e-3');
    expect(format.metric(NaN)).toBe('NaN');
  });
});

describe('names', () => {
  it('come on one line, without marks that turn text around', () => {
    expect(format.oneLine('a\n\tb\u202ec')).toBe('a b c');
    expect(format.oneLine('x'.repeat(10_000), 50)).toHaveLength(50);
  });
});
