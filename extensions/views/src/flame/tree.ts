/**
 * Which code allocated memory, as a tree: the calls of the stacks, or the paths of the modules. Node 0 is
 * everything; a node stands behind the node it is below, so that sums run from back to front.
 */
import { sourceLabel } from '../graph/dom';
import type { MemoryColumns } from '../memory/series';

/** By what blocks are grouped. */
export type Grouping = 'stack' | 'module';

const LIBRARY = ['site-packages', 'dist-packages', '/torch/', '<frozen', '??'];
const TYPED = ['<ipython', '<stdin>', '<cell'];

/** Whether a file is no person's own Python; as in `workbench/memory/files/from_stacks.py`. */
export function isLibrary(filename: string): boolean {
  const own = filename.endsWith('.py') || TYPED.some((start) => filename.startsWith(start));
  return !own || LIBRARY.some((part) => filename.includes(part));
}

export class FlameTree {
  readonly parent: Int32Array;
  /** The children of node n are `children[first[n]]` up to `children[first[n + 1]]`. */
  readonly children: Int32Array;
  readonly first: Int32Array;

  /**
   * `column` holds a key for every block, and `nodes` the node of every key; the last one is that
   * of -1. `names` are a node's name, and where it is.
   */
  constructor(
    parent: readonly number[],
    private readonly column: ArrayLike<number>,
    private readonly nodes: Int32Array,
    private readonly names: (node: number) => readonly [name: string, place: string],
    /** Row of the sources of a node, -1 for one that is no call. */
    readonly sourceOf: (node: number) => number,
  ) {
    this.parent = Int32Array.from(parent);
    this.first = new Int32Array(this.size + 1);
    for (let node = 1; node < this.size; node += 1) this.count(node);
    for (let node = 0; node < this.size; node += 1)
      this.first[node + 1] = (this.first[node + 1] ?? 0) + (this.first[node] ?? 0);
    this.children = new Int32Array(Math.max(0, this.size - 1));
    const next = this.first.slice();
    for (let node = 1; node < this.size; node += 1) {
      const up = this.parent[node] ?? 0;
      const at = next[up] ?? 0;
      this.children[at] = node;
      next[up] = at + 1;
    }
  }

  private count(node: number): void {
    const up = (this.parent[node] ?? 0) + 1;
    this.first[up] = (this.first[up] ?? 0) + 1;
  }

  get size(): number {
    return this.parent.length;
  }

  name(node: number): string {
    return this.names(node)[0];
  }

  place(node: number): string {
    return this.names(node)[1];
  }

  /** The innermost node that a block belongs to. */
  nodeOf(block: number): number {
    const key = this.column[block] ?? -1;
    return this.nodes[key < 0 ? this.nodes.length - 1 : key] ?? 0;
  }

  childrenOf(node: number): Int32Array {
    return this.children.subarray(this.first[node] ?? 0, this.first[node + 1] ?? 0);
  }

  /** From the outermost node to this one, everything left out. */
  path(node: number): number[] {
    const found: number[] = [];
    for (let at = node; at > 0; at = this.parent[at] ?? 0) found.push(at);
    return found.reverse();
  }

  /** Whether a block belongs to a node, or to one below it. */
  below(top: number): (block: number) => boolean {
    const inside = new Uint8Array(this.size);
    inside[top] = 1;
    for (let node = top + 1; node < this.size; node += 1)
      inside[node] = inside[this.parent[node] ?? 0] ?? 0;
    return (block) => inside[this.nodeOf(block)] === 1;
  }
}

const ALL = 'All blocks';
const OTHERS = [
  [ALL, ''],
  ['No stack known', 'there before the recording, or recorded without one'],
  ['Library code alone', 'no frame of these stacks is in a file of your own'],
] as const;

/** The stacks; with `fold`, what libraries call is their caller's. */
export function stackTree(record: MemoryColumns, fold: boolean): FlameTree {
  const sources = record.sources;
  const folded = fold ? sources.map(({ filename }) => isLibrary(filename)) : [];
  // Everything, blocks whose stack is not known, and blocks of stacks without code of the user.
  const parent = [-1, 0, 0];
  const source = [-1, -1, -1];
  const calls = record.call_parent.length;
  const nodes = new Int32Array(calls + 1);
  const known = new Map<number, number>();
  for (let call = 0; call < calls; call += 1) {
    const row = record.call_source[call] ?? 0;
    const above = record.call_parent[call] ?? -1;
    const up = above < 0 ? 0 : (nodes[above] ?? 0);
    if (folded[row]) {
      nodes[call] = up;
      continue;
    }
    const key = up * sources.length + row;
    const found = known.get(key) ?? parent.length;
    if (found === parent.length) {
      known.set(key, found);
      parent.push(up);
      source.push(row);
    }
    nodes[call] = found;
  }
  const innermost = nodes.map((node) => (node === 0 ? 2 : node));
  innermost[calls] = 1;
  const names = (node: number): readonly [string, string] => {
    const line = sources[source[node] ?? -1];
    if (!line) return OTHERS[node] ?? ['', ''];
    return [line.function || 'module level', sourceLabel(line)];
  };
  return new FlameTree(parent, record.block_call, innermost, names, (node) => source[node] ?? -1);
}

/** The modules: `encoder.layers.0` is below `encoder.layers`, and that below `encoder`. */
export function moduleTree(record: MemoryColumns): FlameTree {
  const parent = [-1, 0];
  const paths = ['', ''];
  const known = new Map<string, number>();
  const nodeOf = (path: string): number => {
    const found = known.get(path);
    if (found !== undefined) return found;
    const dot = path.lastIndexOf('.');
    const up = dot > 0 ? nodeOf(path.slice(0, dot)) : 0;
    known.set(path, parent.length);
    parent.push(up);
    paths.push(path);
    return parent.length - 1;
  };
  const nodes = new Int32Array(record.strings.length + 1).fill(1);
  const used = new Set<number>();
  for (let block = 0; block < record.block_module.length; block += 1)
    used.add(record.block_module[block] ?? 0);
  for (const row of used) {
    const path = record.strings[row];
    if (path) nodes[row] = nodeOf(path);
  }
  const names = (node: number): readonly [string, string] => {
    const path = paths[node] ?? '';
    if (!path) return [[ALL, 'No module known'][node] ?? '', ''];
    const name = path.slice(path.lastIndexOf('.') + 1);
    return [name, name === path ? '' : path];
  };
  return new FlameTree(parent, record.block_module, nodes, names, () => -1);
}
