import path from 'node:path';
import type { FullConfig, FullResult, Reporter, Suite, TestCase } from '@playwright/test/reporter';

/** So many tests may need their second try; more of them fail the run. */
const MOST_FLAKY = 2;
const SLOWEST = 10;
const checkout = path.resolve(__dirname, '../..');

/** What a run came to, after everything else that is printed: how to run again what failed. */
export default class SummaryReporter implements Reporter {
  private suite: Suite | undefined;

  onBegin(_config: FullConfig, suite: Suite): void {
    this.suite = suite;
  }

  onEnd(result: FullResult): Promise<{ status: FullResult['status'] }> {
    const tests = this.suite?.allTests() ?? [];
    const [failed, flaky, passed] = (['unexpected', 'flaky', 'expected'] as const).map((outcome) =>
      tests.filter((test) => test.outcome() === outcome && test.results.length > 0),
    ) as [TestCase[], TestCase[], TestCase[]];
    const ran = tests.filter((test) => test.results.length > 0);
    if (ran.length === 0) return Promise.resolve({ status: result.status }); // only listed
    const said: string[] = [];
    if (ran.length > 1) {
      const slowest = [...ran].sort((a, b) => seconds(b) - seconds(a)).slice(0, SLOWEST);
      said.push('', 'The slowest tests:');
      said.push(
        ...slowest.map((test) => `  ${seconds(test).toFixed(1).padStart(6)} s  ${name(test)}`),
      );
    }
    if (flaky.length > 0) {
      said.push('', 'These tests needed their second try:');
      for (const test of flaky) said.push(`  ${name(test)}`, `    ${firstError(test)}`);
      if (flaky.length > MOST_FLAKY)
        said.push(`That is more than the ${MOST_FLAKY} that a run may have: it failed.`);
    }
    if (failed.length > 0) {
      said.push('', 'These tests failed; each line runs one of them again:');
      said.push(...failed.map((test) => `  make ui UI_ARGS='${place(test)}'`));
    }
    const skipped = tests.length - passed.length - failed.length - flaky.length;
    const counts = [`${passed.length} passed`, `${failed.length} failed`, `${flaky.length} flaky`];
    if (skipped > 0) counts.push(`${skipped} not run`);
    said.push('', `${counts.join(', ')} in ${(result.duration / 1000).toFixed(0)} s`);
    console.log(said.join('\n'));
    const isTooFlaky = result.status === 'passed' && flaky.length > MOST_FLAKY;
    return Promise.resolve({ status: isTooFlaky ? 'failed' : result.status });
  }

  printsToStdio(): boolean {
    return true;
  }
}

function seconds(test: TestCase): number {
  return Math.max(0, ...test.results.map(({ duration }) => duration)) / 1000;
}

/** Where a test stands, as Playwright takes it as an argument. */
function place({ location }: TestCase): string {
  return `${path.relative(checkout, location.file)}:${location.line}`;
}

function name(test: TestCase): string {
  return `${place(test)} ${test.title}`;
}

/** What the first try failed with and in which line, without the colours. */
function firstError(test: TestCase): string {
  const error = test.results[0]?.errors[0];
  const message = error?.message ?? error?.value ?? test.results[0]?.status ?? '';
  // eslint-disable-next-line no-control-regex
  const lines = message.replace(/\u001b\[[\d;]*m/g, '').split('\n');
  const reported = lines.filter((line) => /^(Locator|Expected|Received)/.test(line));
  const at = error?.location === undefined ? '' : ` in line ${error.location.line}`;
  return [`${lines[0] ?? ''}${at}`, ...reported.map((line) => line.slice(0, 300))].join('\n      ');
}
