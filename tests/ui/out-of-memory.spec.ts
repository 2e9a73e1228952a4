import { expect, test } from '@jupyterlab/galata';
import { pictures, runNotebook, PATIENT } from './helpers';

/** Runs on a simulated GPU that has 40 MiB to give: the activations of a batch take more. */
const TOO_MUCH = `import torch, workbench as wb
from torch import nn

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(8)))
        self.head = nn.Linear(256, 3)

    def forward(self, x):
        return self.head(self.layers(x))

torch.manual_seed(0)
torch.set_num_threads(1)
x, y = torch.randn(4096, 256), torch.arange(4096) % 3
exp = wb.Experiment(Deep(), (x, y), batch_size=2048, epochs=2, name="deep")
exp.card = "552 MiB"
exp.run()
exp`;

test.describe('Out of memory', () => {
  test('says what was requested, and resumes with what helps', async ({ page, tmpPath }) => {
    await runNotebook(page, `${tmpPath}/deep.ipynb`, [TOO_MUCH]);
    const alert = page.locator('.wb-panel .wb-msg[role=alert]').first();
    await expect(alert.getByRole('heading')).toHaveText(/^Out of memory: .* requested/, PATIENT);
    await expect(alert).toContainText('552 MiB, simulated: 40.0 MiB usable');
    await expect(alert).toContainText('self.layers(x)');
    const first = alert.getByRole('radio').first();
    await expect(first).toBeChecked(PATIENT);
    await alert.scrollIntoViewIfNeeded();
    await pictures(page, 'out-of-memory');

    const resume = alert.getByRole('button', { name: /^Resume with / });
    await expect(resume).toBeVisible();
    await resume.click();
    const state = page.locator('.wb-panel .wb-stats .wb-state').first();
    await expect(state).toHaveText('finished', PATIENT);
    await expect(alert).toBeHidden();
  });
});
