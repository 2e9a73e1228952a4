import {
  isOfMemory,
  thin,
  type Command,
  type Curve,
  type ExperimentModel,
  type FlowPiece,
  type KernelModel,
  type KernelStore,
  type Store,
} from '@torch-workbench/views';
import type { IWorkbenchSettings } from '../tokens';

/**
 * A kernel's store as the panels and the status bar see it: redrawn no more often, and with no more
 * points a curve, than the settings say.
 */
export class PacedStore implements Store<KernelModel, Command> {
  constructor(
    private readonly store: KernelStore,
    private readonly settings: IWorkbenchSettings,
  ) {
    this.model = this.thinned(store.get());
    this.stop = store.subscribe(() => this.later());
    settings.changed.connect(this.later, this);
  }

  get(): KernelModel {
    return this.model;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  send(command: Command): Promise<void> {
    return this.store.send(command);
  }

  fetchRecord(experiment: string, capture: string): Promise<ArrayBuffer> {
    return this.store.fetchRecord(experiment, capture);
  }

  fetchFlow(experiment: string, known: number): Promise<FlowPiece | null> {
    return this.store.fetchFlow(experiment, known);
  }

  fetchExport(experiment: string, capture: string, format: string): Promise<ArrayBuffer> {
    return this.store.fetchExport(experiment, capture, format);
  }

  ask(experiment: string, capture: string, question: object): Promise<object> {
    return this.store.ask(experiment, capture, question);
  }

  dispose(): void {
    this.stop();
    window.clearTimeout(this.timer);
    this.settings.changed.disconnect(this.later, this);
    this.listeners.clear();
  }

  private later(): void {
    if (this.timer === 0) {
      const wait = this.notifiedAt + this.settings.refreshInterval - performance.now();
      this.timer = window.setTimeout(() => this.notify(), Math.max(0, wait));
    }
  }

  private notify(): void {
    this.timer = 0;
    this.notifiedAt = performance.now();
    this.model = this.thinned(this.store.get());
    for (const listener of [...this.listeners]) {
      listener();
    }
  }

  private thinned(model: KernelModel): KernelModel {
    const most = this.settings.maxPoints;
    const isLong = ([name, curve]: [string, Curve]): boolean =>
      curve.length > most && !isOfMemory(name);
    if (![...model.experiments.values()].some((one) => [...one.curves].some(isLong))) {
      return model;
    }
    const experiments = new Map<string, ExperimentModel>();
    for (const [id, one] of model.experiments) {
      const curves = new Map(
        [...one.curves].map((named) => (isLong(named) ? [named[0], thin(named[1], most)] : named)),
      );
      experiments.set(id, { ...one, curves });
    }
    return { ...model, experiments };
  }

  private model: KernelModel;
  private readonly stop: () => void;
  private readonly listeners = new Set<() => void>();
  private timer = 0;
  private notifiedAt = -Infinity;
}
