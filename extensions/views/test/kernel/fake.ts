import type { Buffer, Channel, ChannelData } from '../../src/kernel';
import type { ExperimentState, ModeState } from '@torch-workbench/records';

/** The kernel's end of a channel, played by hand: what it was sent, and how to answer. */
export class FakeKernel {
  readonly sent: ChannelData[] = [];
  closed = 0;
  private seq = 0;
  private deliver: (data: ChannelData, buffers: readonly Buffer[]) => void = () => undefined;
  private close: (reason: string, final?: boolean) => void = () => undefined;

  readonly connect = (): Promise<Channel> => {
    this.seq = 0;
    return Promise.resolve({
      send: (data) => this.sent.push(data),
      onMessage: (callback) => (this.deliver = callback),
      onClose: (callback) => (this.close = callback),
      close: () => (this.closed += 1),
    });
  };

  say(type: string, fields: ChannelData = {}, buffers: readonly Buffer[] = []): void {
    this.seq += 1;
    this.deliver({ type, seq: this.seq, ...fields }, buffers);
  }

  hello(experiments: string[] = ['e1'], fields: ChannelData = {}): void {
    const kernel = { device: 'CPU', cores: 2, memory_bytes: 8 * 2 ** 30, python: '', torch: '' };
    this.say('hello', { protocol: 2, kernel, experiments, ...fields });
  }

  curves(from: number, steps: number[], values: number[], reset = false): void {
    const columns = [Int32Array.from(steps), Float32Array.from(values), new Float32Array(0)];
    const total = [from + steps.length];
    const which = { experiment: 'e1', names: ['train/loss'] };
    this.say(
      'curves',
      { ...which, from: [from], total, weight: [0], reset },
      columns.map((column) => column.buffer),
    );
  }

  reply(error = ''): void {
    const command = this.sent.filter((message) => message['type'] === 'command').at(-1);
    this.say('reply', { id: command?.['id'], ok: error === '', error });
  }

  lose(messages = 1): void {
    this.seq += messages;
  }

  hangUp(reason: string, final = false): void {
    this.close(reason, final);
  }

  /** Names of the commands received, in order. */
  commands(): unknown[] {
    return this.sent.filter((one) => one['type'] === 'command').map((one) => one['name']);
  }
}

export const PRECISION: ModeState = {
  name: 'precision',
  label: 'Precision',
  value: 'fp32',
  default: 'fp32',
  choices: [
    { value: 'fp32', available: true, why: '', remedy: '', commands: [], emulated: false },
    { value: 'bf16', available: true, why: '', remedy: '', commands: [], emulated: false },
    {
      value: 'fp16',
      available: false,
      why: 'This CPU has no fp16 arithmetic.',
      remedy: 'Use bf16 here.',
      commands: ['pip install something'],
      emulated: false,
    },
  ],
  badge: { kind: 'baseline', text: 'baseline', detail: 'bf16: not measured', tooltip: '' },
  pending: '',
};

export function state(change: Partial<ExperimentState> = {}): ExperimentState {
  return {
    id: 'e1',
    name: 'exp',
    model: 'Net',
    status: 'idle',
    step: 0,
    total_steps: 30,
    steps_per_epoch: 10,
    epoch: 0,
    epochs: 3,
    samples_per_s: null,
    seconds_left: null,
    learning_rate: 1e-3,
    schedule: null,
    loss_name: 'cross entropy',
    best_accuracy: null,
    started_at: null,
    message: 'ready',
    facts: [{ label: 'Model', value: 'Net, 1.0 k parameters' }],
    modes: [PRECISION],
    markers: [],
    failure: null,
    newer_model: null,
    captures: [],
    carried: [],
    dropped_points: 0,
    notes: [],
    run_path: '/runs/exp',
    device: 'cpu',
    ...change,
  };
}
