import type {
  Badge,
  CarryRow,
  ExperimentState,
  ModeChoice,
  ModeState,
  RunSummary,
  ScheduleState,
} from '@torch-workbench/records';
import type { ExperimentModel, KernelModel } from '../src/kernel';
import { accuracyCurves, lossCurve, memory, memoryCurves, valCurve } from './curves';
import { EXCEPTION, NAN, OUT_OF_MEMORY } from './failures';

/** Every state of the panel, with invented figures. */

function choice(value: string, change: Partial<ModeChoice> = {}): ModeChoice {
  return { value, available: true, why: '', remedy: '', commands: [], emulated: false, ...change };
}

function carry(name: string, outcome: CarryRow['outcome'], [before, now]: string[]): CarryRow {
  const shapes = { old_shape: before ?? '', new_shape: now ?? '' };
  return { name, outcome, ...shapes, kind: 'parameter', note: '' };
}

function badge(kind: Badge['kind'], text: string, detail = '', tooltip = ''): Badge {
  return { kind, text, detail, tooltip };
}

const COMPILE = ['off', 'blocks', 'whole'].map((value) => choice(value));
const PRECISION = [
  choice('fp32'),
  choice('bf16'),
  choice('fp16', {
    available: false,
    why: 'Emulation only on this CPU: measured 5.8× slower than fp32.',
    remedy: 'Use bf16 here. fp16 becomes selectable on a GPU.',
  }),
];
const ATTENTION = ['auto', 'flash', 'math'].map((value) => choice(value));

function mode(
  name: string,
  value: string,
  choices: readonly ModeChoice[],
  shown: Badge = badge('baseline', 'baseline'),
): ModeState {
  const label = name[0]?.toUpperCase() + name.slice(1);
  const first = choices[0]?.value ?? '';
  return { name, label, value, default: first, choices, badge: shown, pending: '' };
}

const FASTER = badge(
  'good',
  '1.4× faster',
  'pays back after 780 steps',
  'median 31.2 ms before, 22.4 ms now; 20 steps each, spread 4 %',
);
const MODES = [
  mode('compile', 'blocks', COMPILE, FASTER),
  mode(
    'precision',
    'bf16',
    PRECISION,
    badge('good', '1.2× faster, −31 % memory', 'max |Δ logit| 3e-3'),
  ),
  mode('attention', 'auto', ATTENTION, badge('none', 'no effect', 'model has no attention')),
];
/** Of a CPU without anything special, as the kernel says them. */
const EMULATED = 'Emulated: numerics only, slower: this CPU has no 8-bit products.';
const MANY_PRECISIONS = [
  choice('fp32'),
  choice('tf32', { available: false, why: 'This CPU has no TF32 products.', remedy: 'Use bf16.' }),
  choice('bf16'),
  choice('fp16', {
    why: '56× (50 to 70×) slower than fp32 on this CPU.',
    remedy: 'Use bf16 here.',
  }),
  choice('fp8', { why: EMULATED, emulated: true }),
  choice('fp8-rowwise', { why: EMULATED, emulated: true }),
  choice('mxfp8', {
    available: false,
    why: 'It needs torchao.',
    remedy: 'Install it, then check again.',
    commands: ['pip install "torch-workbench[lowprecision]"'],
  }),
];
const MANY_MODES = [
  mode('compile', 'off', COMPILE),
  mode('precision', 'fp32', MANY_PRECISIONS, badge('baseline', 'baseline', 'bf16: 1.3× faster')),
  mode('attention', 'auto', [
    ...ATTENTION,
    choice('efficient', { available: false, why: 'Torch has none for any CPU.' }),
    choice('cudnn', { available: false, why: 'It needs a CUDA device.' }),
  ]),
  mode(
    'checkpoint',
    'off',
    ['off', 'auto', 'stages'].map((value) => choice(value)),
  ),
  mode(
    'parallel',
    'off',
    ['off', 'ddp:2', 'fsdp:2'].map((value) => choice(value)),
  ),
];
const PLAIN_MODES = [
  mode('compile', 'off', COMPILE),
  mode('precision', 'fp32', PRECISION),
  mode('attention', 'auto', ATTENTION),
];
const NO_COMPILER = {
  available: false,
  why: 'Compiled blocks are built as C++ for this CPU. No g++ or clang++ is on PATH and CXX is not set.',
  remedy: 'Install one, then check again. The kernel and the training keep running.',
  commands: ['conda install -c conda-forge cxx-compiler', 'sudo apt install g++'],
};
const BLOCKED_MODES = [
  mode(
    'compile',
    'off',
    [choice('off'), choice('blocks', NO_COMPILER), choice('whole', NO_COMPILER)],
    badge('warn', 'needs a C++ compiler'),
  ),
  mode('precision', 'bf16', PRECISION, badge('bad', '0.9×', 'this CPU has no bf16 units')),
  mode('attention', 'auto', ATTENTION, badge('todo', 'not measured')),
];

const BASE: ExperimentState = {
  id: 'demo',
  name: 'exp',
  model: 'EarlyExitCNN',
  status: 'training',
  step: 412,
  total_steps: 1350,
  steps_per_epoch: 450,
  epoch: 1,
  epochs: 3,
  samples_per_s: 1900,
  seconds_left: 48,
  learning_rate: 1e-3,
  schedule: null,
  loss_name: 'cross entropy',
  best_accuracy: 0.549,
  started_at: 1_795_000_000,
  message: 'step 412: switched to compile blocks + bf16; first step took 14.0 s',
  facts: [
    { label: 'Model', value: 'EarlyExitCNN, 8.88 M parameters' },
    { label: 'Data', value: 'cifar10, 45 000 train, 5 000 val' },
    { label: 'Steps', value: '450 per epoch, batch 100' },
    { label: 'Optimizer', value: 'Adam, learning rate 1.0e-3' },
    { label: 'Memory', value: '102 MiB before the first batch' },
  ],
  modes: MODES,
  markers: [
    { step: 96, text: 'attention math' },
    { step: 200, text: 'lr 1e-3' },
    { step: 412, text: 'compile blocks + bf16' },
  ],
  failure: null,
  newer_model: null,
  captures: ['graph', 'memory'].map((kind, i) => ({
    id: `c${i}`,
    kind: kind as 'graph' | 'memory',
    step: 400,
    against_step: null,
    num_bytes: 190_000 * (1 + 5 * i),
    created_at: Date.now() / 1000 - 16,
    summary: '',
  })),
  carried: [],
  dropped_points: 0,
  notes: [
    'the model reads a value of its data, so every rank computes whole batches: steps get no faster by ranks',
    'batches of 64 in an epoch of 1,350: the last one has 6 samples',
  ],
  run_path: '/home/you/runs/exp',
  device: 'cpu',
};

function experiment(
  change: Partial<ExperimentState>,
  extra: Partial<ExperimentModel> = {},
): ExperimentModel {
  const state = { ...BASE, ...change };
  const curves = new Map();
  if (state.step > 0) {
    const train = lossCurve(state.step, 5, state.status === 'nan');
    curves.set('train/loss', train).set('val/loss', valCurve(train));
    const device = state.device === 'cpu' ? 'cpu' : 'cuda';
    for (const [name, curve] of accuracyCurves(state.step)) curves.set(name, curve);
    for (const [name, curve] of memoryCurves(state.step, device)) curves.set(name, curve);
  }
  return { state, curves, chart: state.step > 0 ? memory(true) : null, ...extra };
}

const SCALED =
  'A rate set here holds from the next step on and scales the rest of the schedule with it.';

/** Warm-up and cosine over the whole run, or a plateau's; a point stands for 12 steps. */
function schedule(change: Partial<ScheduleState> = {}): ScheduleState {
  const rates = Array.from({ length: 113 }, (_, i) =>
    i < 34 ? 4e-5 + 9.6e-4 * (i / 34) : 5e-4 * (1 + Math.cos((Math.PI * (i - 34)) / 79)),
  );
  return {
    name: 'OneCycleLR',
    every: 'step',
    effect: SCALED,
    start: 0,
    end: 1350,
    size: 12,
    low: rates,
    high: rates,
    is_whole: true,
    why: '',
    ...change,
  };
}

const NO_CURVE = { low: [], high: [], start: 0, end: 0, size: 1 };
const BAND = {
  low: Array<number>(113).fill(1e-4),
  high: Array.from({ length: 113 }, (_, i) => 1e-3 * 0.985 ** i),
};

const EVIL = `<script>alert(1)</script>\n${'very_long_name_'.repeat(700)}`;

export const EXPERIMENTS: Readonly<Record<string, ExperimentModel>> = {
  training: experiment({}),
  schedule: experiment({ schedule: schedule() }),
  cycles: experiment({ schedule: schedule({ name: 'CyclicLR', ...BAND }) }),
  metric: experiment({
    schedule: schedule({
      name: 'ReduceLROnPlateau',
      every: 'epoch',
      why: 'by metric',
      ...NO_CURVE,
    }),
  }),
  'no copy': experiment({
    schedule: schedule({
      name: 'LambdaLR',
      why: "no curve: the schedule cannot be copied (cannot pickle 'generator' object)",
      ...NO_CURVE,
    }),
  }),
  idle: experiment({
    status: 'idle',
    step: 0,
    epoch: 0,
    modes: PLAIN_MODES,
    markers: [],
    captures: [],
    message: 'ready: model and data found, nothing has run yet',
  }),
  gpu: experiment({ device: 'cuda:0' }),
  paused: experiment({ status: 'paused', message: 'step 412: paused' }),
  finished: experiment({
    status: 'finished',
    step: 1350,
    markers: [],
    message: 'finished 3 epochs in 2 min 11 s; best accuracy 78.4 %',
    carried: [
      carry('stem.0.weight', 'carried', ['64×3×3×3', '64×3×3×3']),
      carry('head.weight', 'reshaped', ['10×512', '100×512']),
      carry('gate.weight', 'new', ['', '1×64']),
      {
        ...carry('rotary.table', 'new', ['512×64', '512×64']),
        kind: 'buffer',
        note: "not persistent: the new model's value",
      },
    ],
  }),
  stopped: experiment({ status: 'stopped', message: 'step 412: stopped' }, { chart: null }),
  exception: experiment({
    status: 'exception',
    step: 186,
    failure: EXCEPTION,
    message: 'step 187: RuntimeError; run stopped, nothing lost',
  }),
  many: experiment({ modes: MANY_MODES }),
  mended: experiment({
    status: 'exception',
    step: 186,
    failure: EXCEPTION,
    newer_model: {
      text: 'The model that failed is the old one: EarlyExitCNN would build it differently now.',
      code: 'exp.model = EarlyExitCNN()',
    },
    message: 'step 187: RuntimeError; run stopped, nothing lost',
  }),
  memory: experiment({
    status: 'exception',
    step: 186,
    modes: PLAIN_MODES,
    failure: OUT_OF_MEMORY,
    message:
      'step 187: out of memory; paused, step not applied, nothing lost. It would fit with bf16',
  }),
  trying: experiment({
    status: 'exception',
    step: 186,
    modes: PLAIN_MODES,
    failure: { ...OUT_OF_MEMORY, remedies: [] },
    message: 'step 187: out of memory; trying what would help: checkpoint stages',
  }),
  nan: experiment({
    status: 'nan',
    step: 232,
    failure: NAN,
    learning_rate: 1e-2,
    modes: [MODES[0] as ModeState, mode('precision', 'fp16', PRECISION), MODES[2] as ModeState],
    markers: [{ step: 200, text: 'lr 1e-2' }],
    message: 'step 233: loss is NaN; paused, step not applied',
  }),
  unavailable: experiment({
    step: 268,
    seconds_left: 90,
    samples_per_s: 1200,
    modes: BLOCKED_MODES,
    markers: [],
    message: 'compile stays off: no C++ compiler found',
  }),
  restarted: experiment({}),
  hostile: experiment({
    name: EVIL,
    model: EVIL,
    loss_name: EVIL,
    message: EVIL,
    status: 'exception',
    facts: [{ label: EVIL, value: EVIL }],
    markers: [{ step: 40, text: EVIL }],
    failure: {
      ...EXCEPTION,
      title: EVIL,
      message: EVIL,
      scope: EVIL,
      values: [{ label: EVIL, value: EVIL }],
      code: [{ line: 1, text: EVIL, current: true }],
    },
  }),
};

export function kernel(name: string): KernelModel {
  const shown = EXPERIMENTS[name] ?? experiment({});
  const lost = name === 'restarted';
  return {
    connection: lost ? 'dead' : 'live',
    detail: lost ? 'kernel restarted: run the cell again' : '',
    kernel: { device: 'CPU', cores: 8, memory_bytes: 31 * 2 ** 30, python: '3.12', torch: '2.13' },
    experiments: new Map([['demo', shown]]),
    gone: new Set(),
  };
}

export function runs(many = 6): RunSummary[] {
  const now = Date.now() / 1000;
  const newest: [string, string, number | null, number][] = [
    ['exit-cnn-7', 'training', 0.549, 120],
    ['exit-cnn-6', 'paused', 0.66, 3_600],
    ['plain-cnn-2', 'finished', 0.784, 7_200],
    ['exit-cnn-5', 'nan', 0.312, 10_800],
    ['exit-cnn-4', 'exception', null, 90_000],
    ['exit-cnn-1', 'stopped', 0.725, 190_000],
  ];
  const older = Array.from({ length: Math.max(0, many - newest.length) }, (_, at) => {
    const name = `${['sweep-width', 'sweep-lr', 'digits-baseline-long-name'][at % 3]}-${at + 1}`;
    const row: (typeof newest)[0] = [name, 'finished', 0.6 + (at % 7) / 20, 200_000 + at * 9_000];
    return row;
  });
  const rows = [...newest, ...older];
  return rows.map(([name, status, best_accuracy, ago]) => ({
    name,
    path: `runs/${name}`,
    status,
    model: 'EarlyExitCNN',
    modes: 'compile+bf16',
    best_accuracy,
    step: 412,
    updated_at: now - ago,
    checkpoint: status === 'exception' ? null : 408,
  }));
}

/** Three experiments in one kernel, for the side panel. */
export function manyExperiments(): KernelModel {
  const { training, paused, finished } = EXPERIMENTS;
  const named = (model: ExperimentModel | undefined, id: string): [string, ExperimentModel][] =>
    model ? [[id, { ...model, state: { ...model.state, id, name: id } }]] : [];
  const again = 'step 412: paused, because its cell ran again';
  const old = paused && { ...paused, state: { ...paused.state, message: again } };
  const all = [named(training, 'exp'), named(old, 'exp_wide'), named(finished, 'baseline')];
  return { ...kernel('training'), experiments: new Map(all.flat()) };
}
