/** What ends a run, with invented figures. */
import type { Failure } from '@torch-workbench/records';

export const EXCEPTION: Failure = {
  kind: 'exception',
  title: 'Cell [2], line 11: RuntimeError',
  subtitle: 'Step 187 was not applied. Weights and optimizer are those of step 186.',
  message: 'mat1 and mat2 shapes cannot be multiplied (100x64 and 16384x10)',
  source: { filename: '', line: 11, cell: 2, function: 'forward', text: '' },
  scope: 'EarlyExitCNN.forward',
  code: [
    { line: 9, text: '    def forward(self, x):', current: false },
    { line: 10, text: '        h = self.stem(x)', current: false },
    { line: 11, text: '        early = self.exit(h.mean((2, 3)))', current: true },
    { line: 12, text: '        if early.softmax(1).amax(1).min() > 0.9:', current: false },
  ],
  values: [
    { label: 'h', value: '[100, 64, 16, 16] bf16' },
    { label: 'h.mean((2, 3))', value: '[100, 64] bf16' },
    { label: 'exit.weight', value: '[10, 16384] fp32' },
  ],
  traceback: 'Traceback (most recent call last):\n> cell [2], line 11, in forward\n    early = …',
  num_frames: 23,
  num_user_frames: 3,
  step: 187,
  capture: '',
  memory: [],
  remedies: [],
};

/** Figures of a run on a simulated card: a CNN of four stages in batches of 48. */
export const OUT_OF_MEMORY: Failure = {
  ...EXCEPTION,
  title: 'Out of memory: 3.4 MiB asked for in stages.2.norm (forward), step 187, on a 560 MiB card',
  message:
    'Out of memory on a simulated card (560 MiB). Tried to allocate 3.4 MiB. Of 48.0 MiB usable, ' +
    '4.0 MiB are free; 38.9 MiB are allocated, and 5.1 MiB are reserved by the allocator but ' +
    'unallocated. No GPU ran out: exp.card = None ends the simulation',
  scope: 'Stage.forward',
  code: [
    { line: 9, text: '    def forward(self, x):', current: false },
    { line: 10, text: '        h = self.norm(self.conv(x))', current: true },
    { line: 11, text: '        return x + self.drop(torch.relu(h))', current: false },
  ],
  memory: [
    { label: 'Asked for', value: '3.4 MiB, aten.native_batch_norm in stages.2.norm' },
    { label: 'Card', value: '560 MiB, simulated: 48.0 MiB usable' },
    { label: 'Allocated', value: '38.9 MiB' },
    { label: 'Free on the card', value: '4.0 MiB' },
    { label: 'Free in segments', value: '5.1 MiB, at most 2.5 MiB in one piece' },
    { label: 'In the way', value: '1 block, 3.4 MiB' },
  ],
  capture: 'c1',
  remedies: [
    {
      name: 'bf16',
      code: 'exp.modes = "bf16"',
      peak_bytes: 44_040_192,
      fits: true,
      cost: 'Rounding: products and convolutions keep 8 bits of every number. A sample took 0.93 times as long as in batch 40.',
      basis: '3 steps from the failed one on, run with it on the same card, and undone.',
    },
    {
      name: 'checkpoint stages',
      code: 'exp.modes = "checkpoint:stages"',
      peak_bytes: 44_040_192,
      fits: true,
      cost: 'Time: one more forward of stages in every step, the same numbers. A sample took 1.31 times as long as in batch 40.',
      basis: '3 steps from the failed one on, run with it on the same card, and undone.',
    },
    {
      name: 'batch 40',
      code: 'exp.batch_size = 40',
      peak_bytes: 44_040_192,
      fits: true,
      cost: 'Another training: gradients of 40 samples instead of 48, 1.2 times as many steps an epoch; the learning rate stays.',
      basis: '3 steps from the failed one on, run with it on the same card, and undone.',
    },
    {
      name: 'expandable_segments:True',
      code: 'exp.card = "560 MiB, expandable_segments:True"',
      peak_bytes: -1,
      fits: false,
      cost: 'Nothing. On a GPU it is PYTORCH_CUDA_ALLOC_CONF, set before torch is imported.',
      basis: 'The failed step run again with it on the same card: refused as well.',
    },
  ],
};

export const NAN: Failure = {
  ...EXCEPTION,
  kind: 'nan',
  title: 'Loss became NaN at step 233',
  subtitle: 'Paused before the optimizer step, so the weights are those of step 232.',
  values: [
    { label: 'First non-finite', value: 'body.3.conv1, forward' },
    { label: 'Largest value, step 232', value: '6.4e4 (fp16 ends at 65 504)' },
    { label: 'Gradient norm, last 4', value: '1.4, 3.8, 41, inf' },
    { label: 'Learning rate', value: '1.0e-2 since step 200' },
  ],
  step: 233,
};
