/** Questions answered in one click, and what checkpointing a module would bring. */
import { button, h, note, section } from './dom';
import { checkpointCall } from './checkpoint';
import { formatBytes, formatSeconds, plural, shorten } from './format';
import type { Group, Item } from './groups';
import { parametersOf, type Highlight } from './highlight';
import { operationRow, table } from './inspector';
import type { Inspection } from './inspection';
import { isOperation } from './operations';
import type { GraphState } from './state';

const MOST = 20;

/** The two buttons, each with its answer while it is pressed. */
export function questions(inspection: Inspection, item: Item): HTMLElement {
  const { state, light } = inspection;
  const { highlight } = state;
  const on = (kind: Highlight['kind']): boolean =>
    highlight?.kind === kind && highlight.from === item;
  const press = (kind: Highlight['kind'], label: string, key: string): HTMLElement =>
    button(label, () => light(kind, item), { 'aria-pressed': String(on(kind)) }, key);
  const element = h('section', 'wv-sec wv-questions');
  element.append(press('path', 'Path to parameters', 'P'));
  if (highlight && on('path')) element.append(...pathAnswer(state, highlight));
  element.append(press('holders', 'What holds these bytes?', 'H'));
  if (on('holders')) element.append(...holdersAnswer(inspection, item));
  return element;
}

function pathAnswer(state: GraphState, highlight: Highlight): Node[] {
  const names = parametersOf(highlight, state.operations);
  if (names.length === 0) return [h('p', {}, 'No parameter gets a gradient from here.')];
  const path = `Feeds ${plural(names.length, 'parameter')} through ${plural(highlight.lit.size, 'operation')}.`;
  const shown = names.slice(0, MOST).map((name) => h('li', {}, h('code', {}, shorten(name, 60))));
  if (names.length > MOST) shown.push(h('li', 'wv-note', `and ${names.length - MOST} more`));
  return [h('p', {}, path), h('ul', {}, ...shown)];
}

function holdersAnswer({ state, select }: Inspection, item: Item): Node[] {
  const { alone, shared, anyway, others } = state.storages.holding(item);
  const here = isOperation(item) ? 'this operation' : 'this module';
  if (alone + shared + anyway === 0) return [h('p', {}, `Nothing is held by ${here}.`)];
  const sentences = [
    alone > 0
      ? `Releasing what ${here} holds would free ${formatBytes(alone)}, held by it alone.`
      : `Releasing what ${here} holds would free nothing.`,
    shared > 0
      ? `${formatBytes(shared)} are held elsewhere too, and stay until every holder releases them.`
      : '',
    anyway > 0
      ? `${formatBytes(anyway)} are parameters, buffers or inputs, which stay in any case.`
      : '',
  ].filter(Boolean);
  const rows = others
    .slice(0, MOST)
    .map(({ operation, bytes }) => operationRow(state, operation, bytes, select));
  const answer: Node[] = sentences.map((text) => h('p', {}, text));
  if (rows.length > 0) answer.push(table(['Also held by', 'Module', 'Bytes'], rows));
  if (others.length > MOST) answer.push(note(`and ${others.length - MOST} more`));
  return answer;
}

/** What `torch.utils.checkpoint` around a module would free, as an estimate with its basis. */
export function checkpointSection(state: GraphState, item: Group): HTMLElement | null {
  const estimate = state.checkpoint(item);
  if (!estimate) return null;
  const { freed, inputs, modules, seconds, path } = estimate;
  const several = modules > 1;
  // The name of a list comes with a place in it: `layer.0`.
  const name = /[^.]*[^.\d][^.]*(\.\d+)*$/.exec(path)?.[0] ?? path;
  const what = several ? `each of the ${modules}` : shorten(name, 40);
  const time = seconds === null ? '' : ` for about +${formatSeconds(seconds)} a step`;
  const { code, where, mode } = checkpointCall(path, modules);
  const copied = h('span', { role: 'status' }, 'Copy the call');
  const copy = button('', () => {
    void copyText(code).then((done) => (copied.textContent = done ? 'Copied' : 'Select it below'));
  });
  copy.classList.add('wv-primary');
  copy.append(h('b', {}, `Checkpoint ${what}`));
  copy.append(h('span', {}, `frees about ${formatBytes(freed)}${time}`), copied);
  const basis = [
    `Estimate from this record: activations that only ${several ? 'these modules hold' : 'this module holds'}`,
    inputs > 0 ? `, without ${formatBytes(inputs)} of inputs that a checkpoint keeps. ` : '. ',
    seconds === null
      ? 'The forward would run once more; it was not timed. '
      : 'Time: one more forward, as in this capture. ',
    'During its backward the bytes are held again.',
  ].join('');
  const line = h('div', 'wv-code wv-wrap', code);
  const place = note(`In the forward of ${where}:`);
  const asMode = note(`Or as a mode: \`${mode}\``);
  return section('Checkpoint', 'estimate', copy, place, line, asMode, note(basis));
}

/** Whether the text is on the clipboard now: pages without a secure origin have none. */
async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
