/**
 * The gradient flow of a live experiment as it arrives: all of it once, then the columns that were
 * sampled since, put together into one record.
 */
import { sameRows } from './over-graph';
import type { FlowColumns } from './strip';

/**
 * Columns from which everything is requested again: the kernel thins old ones out, this does not.
 */
const MOST = 8192;

export class FlowPieces {
  record: FlowColumns | null = null;

  /** How many samples are known, for the next request; 0 requests all of them. */
  get known(): number {
    const { record } = this;
    return record && record.step.length < MOST ? record.total_sampled : 0;
  }

  /** Takes what comes behind the first `known` samples; false: it does not fit what is held. */
  add(piece: FlowColumns, known: number): boolean {
    const { record } = this;
    if (known === 0) this.record = piece;
    else if (!record || known !== record.total_sampled || !sameRows(record.rows, piece.rows)) {
      this.record = null;
      return false;
    } else this.record = joined(record, piece);
    return true;
  }
}

/** The columns of `piece` behind those of `record`. */
function joined(record: FlowColumns, piece: FlowColumns): FlowColumns {
  const [old, fresh] = [record.step.length, piece.step.length];
  const step = new Float64Array(old + fresh);
  step.set(Array.from(record.step));
  step.set(Array.from(piece.step), old);
  const norm = new Float32Array(piece.rows.length * step.length);
  for (let row = 0; row < piece.rows.length; row += 1) {
    for (let at = 0; at < old; at += 1)
      norm[row * step.length + at] = record.norm[row * old + at] ?? NaN;
    for (let at = 0; at < fresh; at += 1)
      norm[row * step.length + old + at] = piece.norm[row * fresh + at] ?? NaN;
  }
  return { ...piece, step, norm };
}
