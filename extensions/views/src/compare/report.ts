/** A comparison by model and variant, and what one variant's rounds and steps came to. */
import type { ComparedArm, CompareRecord } from '@torch-workbench/records';

/** A variant, and its row in `record.arms`. */
export interface VariantRow {
  readonly variant: ComparedArm;
  readonly row: number;
}

/** Points of a chart: rounds and milliseconds, or steps and losses. */
export interface Points {
  readonly x: readonly number[];
  readonly y: readonly number[];
}

/** Names of the models, in order. */
export function modelsOf({ arms: variants }: CompareRecord): string[] {
  return [...new Set(variants.map(({ model }) => model))];
}

/** JSON has no NaN: a figure that was not measured arrives as null. */
export function withNaN(record: CompareRecord): CompareRecord {
  const variants = record.arms.map((variant) => {
    const fields = Object.entries(variant).map(([name, value]) => [name, value ?? NaN] as const);
    return Object.fromEntries(fields) as unknown as ComparedArm;
  });
  return { ...record, arms: variants };
}

/** A model's variants, the baseline first. */
export function variantsOf({ arms: variants }: CompareRecord, model: string): VariantRow[] {
  return variants.flatMap((variant, row) => (variant.model === model ? [{ variant, row }] : []));
}

/** Median step time of every block of a variant, in milliseconds, by round from 1. */
export function stepTimes(record: CompareRecord, row: number): Points {
  const { block_arm: of, block_round: round, block_seconds: seconds } = record;
  return points(of, row, (at) => [(round[at] ?? 0) + 1, (seconds[at] ?? NaN) * 1e3]);
}

/** Training loss of a variant by step, from the weights at the start. */
export function losses(record: CompareRecord, row: number): Points {
  const { loss_arm: of, loss_step: step, loss_value: value } = record;
  return points(of, row, (at) => [step[at] ?? 0, value[at] ?? NaN]);
}

/**
 * The variant that a person wants to see first: the fastest, or the first that was compared at all.
 */
export function suggestedVariant(variants: readonly VariantRow[]): VariantRow | null {
  const measured = variants.filter(
    ({ variant }) => variant.verdict !== 'baseline' && variant.step_s > 0,
  );
  const faster = measured.filter(({ variant }) => variant.verdict === 'faster');
  const best = faster.sort((a, b) => b.variant.speedup - a.variant.speedup)[0];
  return best ?? measured[0] ?? variants.find(({ variant }) => variant.step_s > 0) ?? null;
}

function points(of: Int32Array, row: number, read: (at: number) => [number, number]): Points {
  const x: number[] = [];
  const y: number[] = [];
  of.forEach((variant, at) => {
    if (variant !== row) return;
    const [across, up] = read(at);
    x.push(across);
    y.push(up);
  });
  return { x, y };
}
