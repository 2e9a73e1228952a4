// Asks `answers.py`, a process that simulates an allocator, one question after the other.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const own = join(here, '../../../.venv/bin/python');

export class Answerer {
  waiting = [];

  /** The answer to a question of the record in a file; the process is started by the first one. */
  ask(record, question) {
    this.process ??= this.start();
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      this.process.stdin.write(`${JSON.stringify({ record, question })}\n`);
    });
  }

  close() {
    this.process?.stdin.end();
  }

  start() {
    const python = existsSync(own) ? own : 'python3';
    const stdio = ['pipe', 'pipe', 'inherit'];
    const started = spawn(python, [join(here, 'answers.py')], { stdio });
    const lines = createInterface({ input: started.stdout });
    lines.on('line', (line) => this.waiting.shift()?.(JSON.parse(line)));
    return started;
  }
}
