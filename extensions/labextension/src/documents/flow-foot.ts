import { GRADIENT_FLOW, readRecordAs } from '@torch-workbench/records';
import { messageOf, remember, remembered } from '@torch-workbench/views';
import { FlowFoot, FlowPieces } from '@torch-workbench/views/flow';
import { report } from '../report';
import type { CaptureView } from './capture';

/** Milliseconds between two requests while the experiment trains. */
const PERIOD_MS = 1000;
/** What stands where an experiment is gone of which nothing was fetched. */
const GONE =
  'The experiment is no longer in its kernel, and its gradient flow is not stored in this tab.';
const OPEN_KEY = 'torch-workbench:gradient-flow-open';

/**
 * The gradient flow of a live experiment below the graph of its capture. It is requested at most
 * once a second, only after a step, and only while a person can see it.
 */
export class CaptureFlow {
  constructor(private readonly view: CaptureView) {
    this.foot = new FlowFoot(view.node, {
      open: this.open,
      onToggle: (open) => {
        this.open = open;
        remember(OPEN_KEY, open);
        this.update();
      },
      colour: (colours) => view.record.update({ colours }),
      goTo: (step) => this.goTo(step),
    });
    this.observer = new IntersectionObserver((entries) => {
      this.visible = entries.at(-1)?.isIntersecting ?? false;
      this.update();
    });
    this.observer.observe(this.foot.element.firstElementChild ?? this.foot.element);
    document.addEventListener('visibilitychange', this.update);
  }

  /** For the graph view's slot. */
  get element(): HTMLElement {
    return this.foot.element;
  }

  /** The tab's capture, what its kernel holds, or what is in sight has changed. */
  readonly update = (): void => {
    const { held, step } = this.view;
    const captured = [...new Set(held.map((one) => one.step))];
    const marks = `${captured.join()} ${step}`;
    if (marks !== this.marks) {
      this.marks = marks;
      this.foot.update({ captured, current: step });
    }
    if (this.isGone() && this.last === null) {
      this.updateFoot({ missing: GONE });
    }
    if (this.timer === 0 && this.isDue()) {
      const wait = this.requestedAt + PERIOD_MS - performance.now();
      this.timer = window.setTimeout(() => void this.fetch(), Math.max(0, wait));
    }
  };

  dispose(): void {
    this.isDisposed = true;
    window.clearTimeout(this.timer);
    document.removeEventListener('visibilitychange', this.update);
    this.observer.disconnect();
    this.foot.dispose();
  }

  /** Whether it is in sight, and there was a step since the last request. */
  private isDue(): boolean {
    const seen = this.visible && this.open && document.visibilityState === 'visible';
    return seen && this.trainedTo() !== this.trained;
  }

  /** Whether its kernel answers, and has no such experiment. */
  private isGone(): boolean {
    const { store, address } = this.view;
    const model = store?.get();
    return model?.connection === 'live' && !model.experiments.has(address.experiment);
  }

  /** How far the experiment has come; null when no kernel can be queried. */
  private trainedTo(): number | null {
    const { store, address } = this.view;
    const state = store?.get().experiments.get(address.experiment)?.state;
    return state ? state.step : this.trained;
  }

  private async fetch(): Promise<void> {
    const { store, address } = this.view;
    const { pieces } = this;
    const trained = this.trainedTo();
    try {
      const piece = (await store?.fetchFlow(address.experiment, pieces.known)) ?? null;
      const fits =
        piece === null || pieces.add(readRecordAs(GRADIENT_FLOW, piece.bytes), piece.known);
      // What does not continue what is held was begun anew: everything is requested next.
      this.trained = fits ? trained : null;
      this.updateFoot({ record: pieces.record ?? this.last, error: null });
    } catch (error) {
      this.trained = trained;
      this.updateFoot({ error: messageOf(error) });
    } finally {
      this.requestedAt = performance.now();
      this.timer = 0;
    }
    if (!this.isDisposed) {
      this.update();
    }
  }

  private updateFoot(change: Parameters<FlowFoot['update']>[0]): void {
    if (!this.isDisposed) {
      this.last = change.record ?? this.last;
      this.foot.update(change);
    }
  }

  private goTo(step: number): boolean {
    const held = this.view.held.find((one) => one.step === step);
    if (held !== undefined) {
      this.view.goTo(held.id).catch(report);
    }
    return held !== undefined;
  }

  private readonly foot: FlowFoot;
  private readonly pieces = new FlowPieces();
  private last: FlowPieces['record'] = null;
  private readonly observer: IntersectionObserver;
  private open = remembered(OPEN_KEY) ?? true;
  private visible = false;
  private isDisposed = false;
  private timer = 0;
  /** Captured steps and the current one, as the strip last received them. */
  private marks = '';
  /** When it was last requested, and how many steps had been trained then. */
  private requestedAt = -Infinity;
  private trained: number | null = null;
}
