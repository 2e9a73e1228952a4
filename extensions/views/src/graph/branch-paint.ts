/** Draws the box of a test that Python made: a dotted diamond, the test, its numbers, its line. */
import { sourceLabel } from './dom';
import { shorten } from './format';
import type { Box } from './layout';
import { TEST_HEIGHT } from './nodes';
import { round, type Scene } from './paint';
import { font } from './paint-node';
import { strengthOf } from './shade';
import type { Operation } from './operations';
import { drawText } from './text';

const DIAMOND = 14;
const TEXT = 46;

export function paintBranch(scene: Scene, box: Box, operation: Operation): void {
  const { context, palette, state, detail, hovered } = scene;
  const { test } = operation;
  if (!test || (detail !== 'all' && detail !== 'name')) return;
  const { x, width } = box.node;
  const { y } = box;
  const middle = y + TEST_HEIGHT / 2;
  context.globalAlpha = strengthOf(state, operation);
  context.fillStyle = palette.raise;
  context.strokeStyle = hovered === box ? palette.ink : palette.stroke2;
  context.lineWidth = hovered === box ? 1.5 : 1;
  round(context, x, y, width, TEST_HEIGHT, 6);
  context.fill();
  context.stroke();
  context.strokeStyle = palette.ink;
  context.lineWidth = 1.25;
  context.setLineDash([1.5, 2.5]);
  context.beginPath();
  const centre = x + TEXT / 2 + 1;
  context.moveTo(centre, middle - 18);
  for (const [dx, dy] of [
    [DIAMOND + 4, 0],
    [0, 18],
    [-DIAMOND - 4, 0],
    [0, -18],
  ] as const)
    context.lineTo(centre + dx, middle + dy);
  context.stroke();
  context.setLineDash([]);
  context.fillStyle = palette.ink;
  context.textAlign = 'center';
  font(scene, 11, true);
  context.fillText(test.word === 'if' ? 'if' : test.word === 'while' ? '↻' : '!', centre, middle);
  context.textAlign = 'left';
  const room = width - TEXT - 8;
  const size = font(scene, 11);
  context.font = `${size}px ${palette.token('--wb-code-font')}`;
  const all = detail === 'all';
  // Both ends: what was compared, and with what.
  const letters = Math.floor(room / context.measureText('0').width);
  drawText(context, shorten(test.condition, letters), x + TEXT, y + (all ? 12 : 15), room);
  font(scene, 11);
  context.fillStyle = palette.ink2;
  const times = test.times > 1 ? ` × ${test.times}` : '';
  const values = all && test.first.values !== test.condition ? test.first.values : '';
  const outcome = `${test.first.taken ? 'True' : 'False'}${times}`;
  const second = y + (all ? 28 : 38);
  let used = drawText(context, values ? `${values} is` : 'is', x + TEXT, second, room - 36) + 4;
  font(scene, 11, true);
  context.fillStyle = palette.ink;
  used += TEXT;
  drawText(context, outcome, x + used, second, room - used + TEXT);
  if (all) paintLine(scene, operation, x + TEXT, y + 44, room);
  context.globalAlpha = 1;
}

/** Where it stands, and what was made next. */
function paintLine(scene: Scene, operation: Operation, x: number, y: number, room: number): void {
  const { context, palette, state } = scene;
  font(scene, 11);
  context.fillStyle = palette.ink2;
  const source = state.record.sources[operation.source];
  const name = nextName(state, operation);
  const next = name && ` → ${name}`;
  const label = source ? sourceLabel(source) : '';
  drawText(context, `${label}${next}`, x, y, room);
}

/** What was made after the test: the module it begins, or the call itself. */
export function nextName(state: Scene['state'], { id, test }: Operation): string {
  const after = test?.after;
  if (!after) return '';
  const around = state.tree.parents[id] ?? null;
  const inner = state.path(after);
  const at = around ? inner.indexOf(around) : -1;
  return inner[at + 1]?.title ?? after.op;
}
