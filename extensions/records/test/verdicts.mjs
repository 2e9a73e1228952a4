// What the browser's reader says of many files: `node verdicts.mjs <file>`, where the file holds
// each one after its size (eight bytes, little-endian). Prints a JSON list: null where it is read,
// else the sentence. tests/properties/test_record_fuzz.py compares them with Python's.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import esbuild from 'esbuild';

const index = join(dirname(fileURLToPath(import.meta.url)), '..', 'src', 'index.ts');
const { outputFiles } = await esbuild.build({
  entryPoints: [index],
  bundle: true,
  format: 'esm',
  write: false,
});
const code = Buffer.from(outputFiles[0].contents).toString('base64');
const { readRecord, RecordError } = await import(`data:text/javascript;base64,${code}`);

function verdict(bytes) {
  try {
    readRecord(bytes);
    return null;
  } catch (error) {
    if (!(error instanceof RecordError)) throw error;
    return error.message;
  }
}

const all = readFileSync(process.argv[2]);
const verdicts = [];
for (let at = 0; at < all.length;) {
  const start = at + 8;
  at = start + Number(all.readBigUInt64LE(at));
  verdicts.push(verdict(all.subarray(start, at)));
}
process.stdout.write(JSON.stringify(verdicts));
