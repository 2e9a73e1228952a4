import type { RunSummary } from '@torch-workbench/records';
import type { DeletedRun, RunsModel, RunsOptions, RunTarget, Store } from '../src';
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
      case 'probe_modes': {
        // as if what the remedy names had been installed meanwhile
        const modes = state.modes.map((one) => ({
          ...one,
          choices: one.choices.map((choice) =>
            choice.commands.length > 0
              ? { ...choice, available: true, why: '', remedy: '', commands: [] }
              : choice,
          ),
        }));
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

/** Runs of a disk that is not there: deleting and Undo work, opening does nothing. */
export class DemoRuns implements Store<RunsModel, never>, RunsOptions {
  private readonly listeners = new Set<() => void>();
  private readonly gone = new Map<string, RunSummary>();
  private model: RunsModel;

  constructor(runs: readonly RunSummary[]) {
    this.model = { runs, deleted: [] };
  }

  get(): RunsModel {
    return this.model;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  send(): Promise<void> {
    return Promise.resolve();
  }

  readonly into = (): RunTarget => ({ name: 'digits-2', status: 'idle', step: 0 });

  readonly onOpen = (): void => undefined;

  readonly onResume = (): Promise<void> => Promise.resolve();

  readonly onLoadBest = (): Promise<void> => Promise.resolve();

  readonly onDelete = (run: RunSummary): Promise<void> => {
    const { runs, deleted } = this.model;
    const kept = { path: `kept/${run.path}`, name: run.name, removed_at: Date.now() / 1000 + 3600 };
    this.gone.set(kept.path, run);
    this.set({ runs: runs.filter((one) => one !== run), deleted: [kept, ...deleted] });
    return Promise.resolve();
  };

  readonly onRestore = ({ path }: DeletedRun): Promise<string> => {
    const { runs, deleted } = this.model;
    const run = this.gone.get(path);
    if (!run) return Promise.reject(new Error('It was already restored or removed.'));
    this.set({ runs: [run, ...runs], deleted: deleted.filter((one) => one.path !== path) });
    return Promise.resolve(run.path);
  };

  private set(model: RunsModel): void {
    this.model = model;
    for (const listener of this.listeners) listener();
  }
}
