import { expect, test } from '@jupyterlab/galata';
import { experimentCode, longExperimentCode, PATIENT, runNotebook, stepOf } from './helpers';

test.describe('What is drawn', () => {
  test('is no panel that is scrolled away; it is up to date when it comes back', async ({
    page,
    tmpPath,
  }) => {
    const tall =
      'from IPython.display import HTML\nHTML("<div style=\'height: 4000px\'>tall</div>")';
    await runNotebook(page, `${tmpPath}/far.ipynb`, [longExperimentCode('far'), tall]);
    const panel = page.getByRole('region', { name: /^Experiment far:/ });
    await panel.getByRole('button', { name: 'Train', exact: true }).click();
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(20);
    await page.getByText('tall', { exact: true }).scrollIntoViewIfNeeded();
    await page.locator('.jp-WindowedPanel-outer').evaluate((outer) => {
      outer.scrollTop += 2000;
    });
    await expect(panel).not.toBeInViewport();
    const status = page.locator('.jp-Workbench-status');
    const trained = async (): Promise<number> =>
      Number(((await status.textContent()) ?? '').match(/([\d,]+)\/32,000/)?.[1]?.replace(',', ''));
    // the frame in which the page says so may still have been drawn
    const before = await trained();
    await expect.poll(trained).toBeGreaterThan(before + 5);
    const left = await stepOf(panel);
    await expect.poll(trained).toBeGreaterThan(left + 50);
    expect(await stepOf(panel)).toBe(left);
    await panel.scrollIntoViewIfNeeded();
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(left + 50);
    await panel.getByRole('button', { name: 'Stop', exact: true }).click();
  });

  test('has the pixels of the monitor that it is moved to', async ({ page, tmpPath }) => {
    const cells = [experimentCode('pixels'), 'wb.graph(exp)'];
    await runNotebook(page, `${tmpPath}/pixels.ipynb`, cells);
    const canvas = page.locator('.jp-OutputArea canvas.wv-surface');
    await expect(canvas).toBeVisible(PATIENT);
    const [tab] = page.context().pages();
    if (tab === undefined) throw new Error('there is no page');
    const session = await page.context().newCDPSession(tab);
    const size = () =>
      canvas.evaluate((node) => ({
        drawn: (node as HTMLCanvasElement).width / node.clientWidth,
        height: node.clientHeight,
      }));
    const { height } = await size();
    // Chromium notices other pixels with another size of the window: the canvas has its own.
    let taller = 1000;
    for (const deviceScaleFactor of [2, 3, 1]) {
      taller += 1;
      const metrics = { width: 1600, height: taller, deviceScaleFactor, mobile: false };
      await session.send('Emulation.setDeviceMetricsOverride', metrics);
      await expect.poll(size).toEqual({ drawn: deviceScaleFactor, height });
    }
  });
});
