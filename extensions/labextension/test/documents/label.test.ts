import type { CaptureInfo } from '@torch-workbench/records';
import { describe, expect, it } from 'vitest';
import { captionOf, nameOf, stemOf, titleOf } from '../../src/documents/label';

const trans = {
  __: (text: string, ...values: string[]) =>
    text.replace(/%(\d)/g, (_, at: string) => String(values[Number(at) - 1])),
} as never;

const INFO = { kind: 'graph', step: 1042, against_step: null } as CaptureInfo;

describe('the name of a tab', () => {
  it('begins with the experiment and the step', () => {
    const named = nameOf('early-exit', INFO, trans);
    expect(titleOf('graph', named, trans)).toBe('early-exit · step 1,042 · graph');
    expect(stemOf(named)).toBe('early-exit · step 1,042');
  });

  it('keeps the step in sight behind a long name, of which the caption says all', () => {
    const named = nameOf('resnet50-baseline-lr2', INFO, trans);
    expect(titleOf('memory', named, trans)).toBe('resnet5…ne-lr2 · step 1,042 · memory');
    expect(captionOf('memory', named, trans)).toBe('resnet50-baseline-lr2 · step 1,042 · memory');
  });

  it('says both steps of a comparison', () => {
    const info = { ...INFO, kind: 'diff', against_step: 7 } as CaptureInfo;
    expect(titleOf('diff', nameOf('a\nb', info, trans), trans)).toBe('a b · 7 → 1,042 · diff');
  });

  it('does without a step that the kernel has not reported', () => {
    expect(titleOf('graph', nameOf('a', undefined, trans), trans)).toBe('a · graph');
  });
});
