import { defineConfig } from 'vitest/config';

export default defineConfig({
  // Tests run straight from the sources of every package, never from a stale lib/.
  resolve: { conditions: ['source'] },
  ssr: { resolve: { conditions: ['source'] } },
  test: {
    include: ['*/test/**/*.test.ts'],
    environment: 'jsdom',
    // For what hangs. How long a test takes is the machine's: five seconds are few on a slow one.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // jsdom is started once per file: fewer workers is faster on a small machine.
    poolOptions: { forks: { maxForks: 2 } },
  },
});
