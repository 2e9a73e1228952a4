import type { Contents } from '@jupyterlab/services';
import { PathExt } from '@jupyterlab/coreutils';

const CHUNK = 0x8000;
/** As many names are tried before an error is shown. */
const MOST_NAMES = 1000;

/** `early exit · step 1,042`, `graph.pdf` -> `early-exit-step-1042.graph.pdf`. */
export function fileName(label: string, ending: string, number: number): string {
  const plain = label.normalize('NFC').replace(/(?<=\d),(?=\d{3})/g, '');
  const words = plain.match(/[\p{L}\p{N}_]+/gu) ?? [];
  const stem = words.join('-').toLowerCase().slice(0, 80) || ending.split('.')[0];
  return `${stem}${number > 1 ? `-${number}` : ''}.${ending}`;
}

/** Writes a file into a folder under a name that is free, and resolves with its path. */
export async function saveFile(
  contents: Contents.IManager,
  folder: string,
  label: string,
  ending: string,
  bytes: ArrayBuffer,
): Promise<string> {
  const taken = new Set(
    (await contents.get(folder)).content.map((one: Contents.IModel) => one.name),
  );
  for (let number = 1; number <= MOST_NAMES; number += 1) {
    const name = fileName(label, ending, number);
    if (!taken.has(name)) {
      const path = PathExt.join(folder, name);
      await contents.save(path, { type: 'file', format: 'base64', content: base64(bytes) });
      return path;
    }
  }
  throw new Error(
    `${folder || 'This folder'} has ${MOST_NAMES} files named ${fileName(label, ending, 1)}.`,
  );
}

/** The bytes as base64, a piece at a time: a call takes only so many arguments. */
export function base64(bytes: ArrayBuffer): string {
  const all = new Uint8Array(bytes);
  const pieces: string[] = [];
  for (let at = 0; at < all.length; at += CHUNK) {
    pieces.push(String.fromCharCode(...all.subarray(at, at + CHUNK)));
  }
  return btoa(pieces.join(''));
}
