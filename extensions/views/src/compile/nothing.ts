/** What stands in place of a report: nothing was compiled, or it cannot be shown. */
import type { CompileRecord } from '@torch-workbench/records';
import { h } from '../dom';
import { shorten } from '../graph/format';

const AGAIN = 'What this process had compiled before is used again without a word.';

/**
 * Why there is nothing, and the line of Python after which there is. Where something of a model may
 * have been missed, notes say what, and it is not said that nothing was compiled.
 */
export function nothingCompiled(record: CompileRecord): HTMLElement[] {
  const { title, why, line } = reason(record);
  const missed = record.notes.length > 0 && record.model !== '';
  return [
    h('h2', {}, missed ? 'No compilation was seen' : title),
    ...(missed ? [] : [h('p', {}, why)]),
    ...record.notes.map((note) => h('p', {}, note)),
    h('div', { class: 'wv-code' }, line),
  ];
}

function reason({ experiment, model, switches }: CompileRecord): {
  title: string;
  why: string;
  line: string;
} {
  const last = switches.at(-1);
  if (experiment === null && model !== '')
    return {
      title: 'Nothing was compiled yet',
      why: `The first forward of a model under modes that compile does it; show the report again behind that. ${AGAIN}`,
      line: 'modes = wb.Modes("compile")',
    };
  if (experiment === null)
    return {
      title: 'Nothing was compiled in this block',
      why: `Call what torch.compile returns inside of it: the first forward compiles. ${AGAIN}`,
      line: 'with wb.compile_report() as report: torch.compile(model)(x)',
    };
  if (last?.compiled)
    return {
      title: 'Nothing was compiled yet',
      why: `Compile is on: the next step compiles, and a report made after it shows what. ${AGAIN}`,
      line: 'exp.run(steps=1, wait=True); wb.compile_report(exp)',
    };
  return {
    title: 'Compile is off',
    why: 'This experiment runs as plain Python so far. Press Compile in its panel, or set the mode, train a step, and request the report again. With explain=True it says beforehand what compile would do.',
    line: 'exp.modes = "compile"',
  };
}

/** One sentence about what went wrong. */
export function failed(problem: string): HTMLElement {
  const title = h('b', {}, 'The compile report could not be shown');
  return h('div', { class: 'wv-error', role: 'alert' }, title, shorten(problem, 2000));
}
