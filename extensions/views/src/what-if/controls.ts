/** The controls of "What if?": a GPU, the allocator's settings, a batch. */
import { h, uniqueId } from '../dom';
import { formatBytes, formatCount } from '../graph/format';
import { batchesOf, type Gpu, type Choice } from './rows';

const GIB = 2 ** 30;
/** Sizes of common GPUs, and one GPU of each size. */
const SIZES = [
  ['24', 'RTX 4090'],
  ['48', 'L40'],
  ['80', 'A100 80 GB'],
  ['141', 'H200'],
] as const;
const OWN = 'own';
const NONE = 'none';

type Numeric = 'split' | 'collect' | 'divisions';

const SELECTS: readonly {
  key: Numeric;
  label: string;
  none: string;
  values: readonly number[];
  unit: string;
}[] = [
  {
    key: 'split',
    label: 'max_split_size',
    none: 'no limit',
    values: [32, 64, 128, 256, 512],
    unit: ' MiB',
  },
  {
    key: 'collect',
    label: 'garbage_collection_threshold',
    none: 'off',
    values: [0.6, 0.7, 0.8, 0.9],
    unit: '',
  },
  {
    key: 'divisions',
    label: 'roundup_power2_divisions',
    none: 'off',
    values: [2, 4, 8, 16],
    unit: '',
  },
];

export class Controls {
  /** Hidden until it is known which GPUs there are. */
  readonly element = h('div', { class: 'wv-wi-controls', hidden: true });
  private readonly sizes = h('div', { class: 'wv-seg', role: 'group', 'aria-label': 'GPU' });
  private readonly menu = h('select', { 'aria-label': 'Other GPU' });
  private readonly own = h('input', {
    type: 'number',
    min: 1,
    step: 0.1,
    'aria-label': 'GiB that the GPU reports',
    placeholder: 'GiB',
  });
  private readonly fact = h('span', { class: 'wv-note' });
  private readonly selects = new Map<Numeric, HTMLSelectElement>();
  private readonly expandable = h('button', {
    type: 'button',
    class: 'wv-switch',
    role: 'switch',
    onclick: () => this.change({ expandable: !this.choice?.expandable }),
  });
  private readonly batch = h('input', { type: 'range', step: 1 });
  private readonly batchSaid = h('span', {});
  private readonly batchMark = h('i', { class: 'wv-wi-tick', 'aria-hidden': 'true' });
  private readonly why = h('span', { class: 'wv-note', id: uniqueId('batch') });
  private gpus: readonly Gpu[] = [];
  private batches: readonly number[] = [];
  private recorded = -1;
  private choice: Choice | null = null;

  constructor(private readonly onChange: (choice: Choice) => void) {
    const gpu = h('div', { class: 'wv-wi-gpu' }, this.sizes, this.menu, this.own);
    this.element.append(field('GPU, GB', h('div', {}, gpu, this.fact)), this.batchField());
    for (const one of SELECTS) this.element.append(this.selectField(one));
    this.element.append(field('expandable_segments', this.expandable, true));
    this.menu.addEventListener('change', () => this.fromMenu());
    this.own.addEventListener('change', () => {
      const size = Number(this.own.value);
      if (size > 0) this.change({ card: Math.round(size * GIB) });
    });
    this.batch.addEventListener('input', () => {
      const batch = this.batches[Number(this.batch.value)] ?? this.recorded;
      this.change({ batch: batch === this.recorded ? null : batch });
    });
  }

  /** Takes the GPUs that there are, and the batch of the recording; -1 for none. */
  open(gpus: readonly Gpu[], batch: number): void {
    this.gpus = gpus;
    this.element.hidden = false;
    this.recorded = batch;
    this.batches = batch > 0 ? batchesOf(batch) : [];
    const known = SIZES.filter(([, name]) => gpus.some((gpu) => gpu.name === name));
    this.sizes.replaceChildren(...known.map(([size, name]) => this.sizeButton(size, name)));
    const option = (value: string, text: string): HTMLElement => h('option', { value }, text);
    this.menu.replaceChildren(
      option('', 'other…'),
      ...gpus.map(({ name, total_bytes }) =>
        option(name, `${name}, reports ${formatBytes(total_bytes)}`),
      ),
      option(OWN, 'own size'),
      option(NONE, 'no limit'),
    );
    this.batch.max = String(this.batches.length - 1);
    this.batch.disabled = this.batches.length === 0;
    const at = this.batches.indexOf(batch) / Math.max(1, this.batches.length - 1);
    this.batchMark.style.left = `calc(8px + ${at} * (100% - 16px))`;
    this.batchMark.hidden = this.batches.length === 0;
    this.why.textContent =
      batch > 0 ? '' : 'Its batch is not recorded: record a step of an experiment to scale it.';
  }

  show(choice: Choice): void {
    this.choice = choice;
    for (const button of this.sizes.querySelectorAll('button'))
      button.setAttribute('aria-pressed', String(button.value === choice.card));
    const sized = SIZES.some(([, name]) => name === choice.card);
    const own = typeof choice.card === 'number';
    this.menu.value = sized ? '' : own ? OWN : (choice.card?.toString() ?? NONE);
    this.own.hidden = !own;
    if (own) this.own.value = String(Math.round((Number(choice.card) / GIB) * 100) / 100);
    this.showGpu(choice.card);
    for (const [key, select] of this.selects) showValue(select, choice[key]);
    const collect = this.selects.get('collect');
    if (collect) collect.disabled = choice.card === null;
    this.expandable.setAttribute('aria-checked', String(choice.expandable));
    this.expandable.textContent = choice.expandable ? 'on' : 'off';
    this.showBatch(choice.batch ?? this.recorded);
  }

  private showBatch(batch: number): void {
    this.batch.value = String(this.batches.indexOf(batch));
    const count = formatCount(batch);
    this.batch.setAttribute('aria-valuetext', batch > 0 ? `${count} samples` : 'not recorded');
    const said =
      batch === this.recorded ? ', as recorded' : `, recorded ${formatCount(this.recorded)}`;
    this.batchSaid.replaceChildren(...(batch > 0 ? [' ', h('b', {}, count), said] : []));
  }

  private showGpu(name: Choice['card']): void {
    const gpu = this.gpus.find((one) => one.name === name);
    const context = 'about 0.5 GiB of it for CUDA itself';
    this.fact.textContent = gpu
      ? `${gpu.name}: ${formatBytes(gpu.usable_bytes)} usable of ${formatBytes(gpu.total_bytes)}, as in ${gpu.source}`
      : name === null
        ? 'as large as needed'
        : `given, ${context}`;
    this.fact.title = gpu ? `${this.fact.textContent}; ${context}` : '';
  }

  private fromMenu(): void {
    const { value } = this.menu;
    if (value === OWN) {
      const gpu = this.gpus.find(({ name }) => name === this.choice?.card);
      this.change({ card: gpu?.total_bytes ?? 16 * GIB });
      this.own.focus();
    } else if (value !== '') this.change({ card: value === NONE ? null : value });
  }

  private change(part: Partial<Choice>): void {
    if (!this.choice) return;
    this.choice = { ...this.choice, ...part };
    this.show(this.choice);
    this.onChange(this.choice);
  }

  private sizeButton(size: string, name: string): HTMLElement {
    const onclick = (): void => this.change({ card: name });
    return h('button', { type: 'button', value: name, title: name, onclick }, size);
  }

  private batchField(): HTMLElement {
    this.batch.setAttribute('aria-label', 'Batch size');
    this.batch.setAttribute('aria-describedby', this.why.id);
    const label = h('span', { class: 'wv-wi-label' }, 'Batch size', this.batchSaid);
    const slide = h('div', { class: 'wv-wi-slide' }, this.batch, this.batchMark);
    return h('div', { class: 'wv-wi-field' }, label, slide, this.why);
  }

  private selectField({ key, label, none, values, unit }: (typeof SELECTS)[number]): HTMLElement {
    const select = h('select', { 'aria-label': label }, h('option', { value: '' }, none));
    for (const value of values) select.append(h('option', { value }, `${value}${unit}`));
    select.addEventListener('change', () =>
      this.change({ [key]: select.value === '' ? null : Number(select.value) }),
    );
    this.selects.set(key, select);
    return field(label, select, true);
  }
}

/** Shows a value in a select, also one that it has no option for. */
function showValue(select: HTMLSelectElement, value: number | null): void {
  const text = value === null ? '' : String(value);
  if (![...select.options].some((option) => option.value === text))
    select.append(h('option', { value: text }, text));
  select.value = text;
}

function field(label: string, control: HTMLElement, code = false): HTMLElement {
  if (!control.hasAttribute('aria-label')) control.setAttribute('aria-label', label);
  const name = h('span', { class: code ? 'wv-wi-label wv-mono' : 'wv-wi-label' }, label);
  return h('div', { class: 'wv-wi-field' }, name, control);
}
