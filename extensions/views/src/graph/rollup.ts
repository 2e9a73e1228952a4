/** Rolls equal neighbours up into one box, and cuts lists that are too long to look at. */
import { isOperation } from './operations';
import type { Fold, Group, Item, Make } from './groups';

/** Lists longer than this are cut into chunks; also bounds the cost of laying one box out. */
export const LONGEST_LIST = 400;
const CHUNK = 200;
const REPEATS = 3;

/** Rolls up everything in `root`, from the innermost box out. */
export function rollUp(root: Group, make: Make, fold?: Fold): void {
  finish(root, new Signatures(), make, fold);
}

/** Gives every structure a small number: equal numbers, equal boxes. */
class Signatures {
  readonly #known = new Map<string, number>();

  of(text: string): number {
    const number = this.#known.get(text) ?? this.#known.size;
    this.#known.set(text, number);
    return number;
  }
}

function finish(group: Group, signatures: Signatures, make: Make, fold?: Fold): number {
  const marks: number[] = [];
  group.children = group.children.map((child) => {
    if (isOperation(child)) {
      // Not by bytes: what the first of equal layers holds, the next ones find held already.
      marks.push(signatures.of(`${child.op} ${child.shape} ${child.dtype} ${child.tag}`));
      return child;
    }
    const mark = finish(child, signatures, make, fold);
    const only = child.children.length === 1 ? child.children[0] : undefined;
    // A module with one operation needs no box: the operation carries its name in the tree.
    if (only?.kind === 'operation') {
      only.name = child.title;
      only.seconds = child.seconds;
      marks.push(mark);
      return only;
    }
    marks.push(mark);
    return child;
  });
  const mark = signatures.of(`${group.cls}(${marks.join(',')})`);
  const list = rolled(group.children, marks, make);
  group.children = split(fold ? fold(list, make) : list, make);
  group.children = group.children.map(absorbed);
  return mark;
}

/** A list that holds nothing but one rolled-up box is that box: `layer 0 … 11 × 12`. */
function absorbed(item: Item): Item {
  if (item.kind !== 'module' || item.children.length !== 1) return item;
  const only = item.children[0];
  if (only?.kind !== 'repeat' || only.path === '') return item;
  const inner = only.path.slice(item.path.length + 1);
  if (inner.includes('.') || !only.path.startsWith(`${item.path}.`)) return item;
  only.title = `${item.title} ${only.title}`;
  return only;
}

function rolled(children: Item[], marks: readonly number[], make: Make): Item[] {
  const result: Item[] = [];
  for (let at = 0; at < children.length;) {
    const first = children[at];
    let end = at + 1;
    while (first && !isOperation(first) && end < children.length && marks[end] === marks[at])
      end += 1;
    if (first && !isOperation(first) && end - at >= REPEATS) {
      const group = make('repeat', -1, 0);
      const last = children[end - 1];
      const calls = last?.kind !== 'operation' && last?.path === first.path;
      // A box of calls stands for one module, a box of modules for the first to the last of them.
      group.title = calls ? `${first.title}, calls` : `${first.title} … ${titleOf(last)}`;
      group.path = calls ? '' : first.path;
      group.cls = first.cls;
      group.children = split(children.slice(at, end), make);
      result.push(group);
    } else result.push(...children.slice(at, end));
    at = end;
  }
  return result;
}

function titleOf(item: Item | undefined): string {
  return item && !isOperation(item) ? item.title : '';
}

/** Cuts a list that is too long into equal ranges, as often as needed. */
function split(children: Item[], make: Make): Item[] {
  let list = children;
  while (list.length > LONGEST_LIST) {
    const size = Math.ceil(list.length / Math.ceil(list.length / CHUNK));
    const chunks: Item[] = [];
    for (let at = 0; at < list.length; at += size) {
      const group = make('chunk', -1, 0);
      group.children = list.slice(at, at + size);
      chunks.push(group);
    }
    list = chunks;
  }
  return list;
}
