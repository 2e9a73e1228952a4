import type { Store } from '../src';
import type { Command, ExperimentModel, KernelModel } from '../src/kernel';

/** A store that answers from the page: enough to press every button without a kernel. */
export class DemoStore implements Store<KernelModel, Command> {
  private readonly listeners = new Set<() => void>();

  constructor(private model: KernelModel) {}

  get(): KernelModel {
    return this.model;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  send(command: Command): Promise<void> {
    const held = this.model.experiments.get(command.experiment);
    if (!held || this.model.connection !== 'live') {
      return Promise.reject(new Error('there is no kernel behind this page'));
    }
    const { state } = held;
    switch (command.name) {
      case 'set_mode': {
        const { mode, value } = command.args;
        const modes = state.modes.map((one) => (one.name === mode ? { ...one, value } : one));
        this.change(command.experiment, { ...held, state: { ...state, modes } });
        break;
      }
      case 'set_learning_rate':
        this.change(command.experiment, {
          ...held,
          state: { ...state, learning_rate: command.args.value },
        });
        break;
      case 'pause':
        this.change(command.experiment, { ...held, state: { ...state, status: 'paused' } });
        break;
      case 'run':
      case 'resume':
        this.change(command.experiment, { ...held, state: { ...state, status: 'training' } });
        break;
      case 'stop':
        this.change(command.experiment, { ...held, state: { ...state, status: 'stopped' } });
        break;
      default:
        return Promise.reject(new Error(`${command.name} needs a kernel, which this page has not`));
    }
    return Promise.resolve();
  }

  private change(key: string, value: ExperimentModel): void {
    this.model = { ...this.model, experiments: new Map(this.model.experiments).set(key, value) };
    for (const listener of this.listeners) listener();
  }
}
