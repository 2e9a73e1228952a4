import { readdirSync, readFileSync } from 'node:fs';
import { defineConfig } from 'vitest/config';

/** Test files that mock a module, which is then mocked in every file that shares it. */
const mocking = ['records', 'views', 'anywidget', 'labextension'].flatMap((name) =>
  readdirSync(`${name}/test`, { recursive: true })
    .map((file) => `${name}/test/${file}`)
    .filter((file) => file.endsWith('.test.ts') && readFileSync(file, 'utf8').includes('vi.mock(')),
);

/**
 * `--mode together` runs the other files with one jsdom and one import of Lumino for all that a
 * worker gets, which takes a third of the time; `--mode mocking` runs these, each by itself.
 */
export default defineConfig(({ mode }) => ({
  // Tests run straight from the sources of every package, never from a stale lib/.
  resolve: { conditions: ['source'] },
  ssr: { resolve: { conditions: ['source'] } },
  test: {
    include: mode === 'mocking' ? mocking : ['*/test/**/*.test.ts'],
    exclude: mode === 'together' ? mocking : [],
    environment: 'jsdom',
    isolate: mode !== 'together',
    // For what hangs. How long a test takes is the machine's: five seconds are few on a slow one.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    poolOptions: { forks: { maxForks: 2 } },
  },
}));
