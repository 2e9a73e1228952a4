/** Times and counts as `workbench/dynamo/render/text.py` words them. */
import type { CompiledKernel, CompileRecord, SourceLine } from '@torch-workbench/records';
import { PHASES } from '@torch-workbench/records';
import { formatCount } from '../graph/format';

/** `12.4 s`, `410 ms`, `1,212 s`. */
export function seconds(value: number): string {
  if (value >= 99.95) return `${formatCount(value)} s`;
  return value >= 0.9995 ? `${value.toFixed(1)} s` : `${(value * 1000).toFixed(0)} ms`;
}

/** The phases, the last called by the compiler that this device's kernels are built with. */
export function phaseNames({ device }: CompileRecord): string[] {
  const compiler = device.startsWith('cuda') ? 'Triton' : 'g++';
  return [...PHASES.slice(0, -1), compiler];
}

/** `Cell [3], line 11` or `model.py:11`. */
export function placeLabel({ filename, line, cell }: SourceLine): string {
  return cell === null
    ? `${filename.split(/[\\/]/).pop() ?? ''}:${line}`
    : `Cell [${cell}], line ${line}`;
}

/** What a kernel is made of, in the words of a person who filters by them. */
export function kernelKind({ language }: CompiledKernel): string {
  return language === 'library' ? 'library call' : `${language} kernel`;
}

/** `forward` or `backward`: the pass that launches it. */
export function passOf({ backward }: CompiledKernel): string {
  return backward ? 'backward' : 'forward';
}
