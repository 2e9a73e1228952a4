/** A comparison by model and arm, and what one arm's rounds and steps came to. */
import type { ComparedArm, CompareRecord } from '@torch-workbench/records';

/** An arm, and its row in `record.arms`. */
export interface ArmRow {
  readonly arm: ComparedArm;
  readonly row: number;
}

/** Points of a chart: rounds and milliseconds, or steps and losses. */
export interface Points {
  readonly x: readonly number[];
  readonly y: readonly number[];
}

/** Names of the models, in order. */
export function modelsOf({ arms }: CompareRecord): string[] {
  return [...new Set(arms.map(({ model }) => model))];
}

/** JSON has no NaN: a figure that was not measured arrives as null. */
export function withNaN(record: CompareRecord): CompareRecord {
  const arms = record.arms.map((arm) => {
    const fields = Object.entries(arm).map(([name, value]) => [name, value ?? NaN] as const);
    return Object.fromEntries(fields) as unknown as ComparedArm;
  });
  return { ...record, arms };
}

/** A model's arms, the baseline first. */
export function armsOf({ arms }: CompareRecord, model: string): ArmRow[] {
  return arms.flatMap((arm, row) => (arm.model === model ? [{ arm, row }] : []));
}

/** Median step time of every block of an arm, in milliseconds, by round from 1. */
export function stepTimes(record: CompareRecord, row: number): Points {
  const { block_arm: of, block_round: round, block_seconds: seconds } = record;
  return points(of, row, (at) => [(round[at] ?? 0) + 1, (seconds[at] ?? NaN) * 1e3]);
}

/** Training loss of an arm by step, from the weights at the start. */
export function losses(record: CompareRecord, row: number): Points {
  const { loss_arm: of, loss_step: step, loss_value: value } = record;
  return points(of, row, (at) => [step[at] ?? 0, value[at] ?? NaN]);
}

/** The arm that a person wants to see first: the fastest, or the first that was compared at all. */
export function worthALook(arms: readonly ArmRow[]): ArmRow | null {
  const measured = arms.filter(({ arm }) => arm.verdict !== 'baseline' && arm.step_s > 0);
  const faster = measured.filter(({ arm }) => arm.verdict === 'faster');
  const best = faster.sort((a, b) => b.arm.speedup - a.arm.speedup)[0];
  return best ?? measured[0] ?? arms.find(({ arm }) => arm.step_s > 0) ?? null;
}

function points(of: Int32Array, row: number, read: (at: number) => [number, number]): Points {
  const x: number[] = [];
  const y: number[] = [];
  of.forEach((arm, at) => {
    if (arm !== row) return;
    const [across, up] = read(at);
    x.push(across);
    y.push(up);
  });
  return { x, y };
}
