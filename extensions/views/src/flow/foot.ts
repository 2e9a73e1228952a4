/**
 * The strip below the graph of a capture: which step a person scrubs to, and the colours that the
 * graph takes from it. Knows no kernel; its host brings records and holds the graph's store.
 */
import { h } from '../graph/dom';
import type { StepColours } from '../graph/step-colours';
import type { Dispose, Store } from '../store';
import { mount, type FlowViewState, type StepDetail } from './mount';
import { stepColours } from './over-graph';
import { columnOf, limitsOf, type FlowColumns } from './strip';

export interface FootHost {
  /** Colours the graph by another step's norms, or, given null, as it was. */
  colour(colours: StepColours | null): void;
  /** Goes to the capture of a step; whether there is one. */
  goTo(step: number): boolean;
  /** Whether the strip is open at first, and what hears that it was opened or closed. */
  readonly open: boolean;
  onToggle(open: boolean): void;
}

export interface FootState {
  readonly record: FlowColumns | null;
  readonly error: string | null;
  readonly missing?: string;
  /** Steps of which there is a capture. */
  readonly captured: readonly number[];
  /** The step of the capture that the graph shows. */
  readonly current: number | null;
}

export class FlowFoot implements Store<FlowViewState, never> {
  /** For the graph view's slot. */
  readonly element = h('div', { style: 'display:contents' });
  private state: FootState = { record: null, error: null, captured: [], current: null };
  private view: FlowViewState = { record: null, error: null };
  /** The step scrubbed to; null while the graph shows its own. */
  private step: number | null = null;
  private frame = 0;
  private readonly listeners = new Set<() => void>();
  private readonly cleanup: Dispose[];

  /** `root` is around the graph view: the events of view and strip arrive there. */
  constructor(
    root: HTMLElement,
    private readonly host: FootHost,
  ) {
    const hear = (event: Event): void => this.hear(event as CustomEvent<StepDetail>);
    root.addEventListener('workbench:step', hear);
    const { open } = host;
    const foot = { open, onToggle: (now: boolean) => host.onToggle(now) };
    this.cleanup = [
      mount(this.element, this, { foot }),
      () => root.removeEventListener('workbench:step', hear),
    ];
  }

  get(): FlowViewState {
    return this.view;
  }

  subscribe(listener: () => void): Dispose {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  send(): Promise<void> {
    return Promise.reject(new Error('the strip takes no command'));
  }

  /** Shows more of a training, or another capture of it. */
  update(change: Partial<FootState>): void {
    const before = this.state;
    this.state = { ...before, ...change };
    if (this.state.current !== before.current) this.scrub(null);
    if (this.step !== null) this.follow(before.record, this.state.record);
    this.notify();
  }

  /** A wider scale colours the step anew; one that was thinned out since keeps its colours. */
  private follow(before: FlowColumns | null, now: FlowColumns | null): void {
    if (now === before) return;
    if (String(now && limitsOf(now)) !== String(before && limitsOf(before))) this.recolour();
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
    for (const end of this.cleanup) end();
  }

  private hear(event: CustomEvent<StepDetail>): void {
    const { step, passing } = event.detail;
    event.preventDefault();
    event.stopPropagation();
    const there =
      step !== null && !passing && (step === this.state.current || this.host.goTo(step));
    this.scrub(there ? null : step);
    this.notify();
  }

  private scrub(step: number | null): void {
    if (step === this.step) return;
    this.step = step;
    this.recolour();
  }

  /** At most once a frame, however fast a pointer moves. */
  private recolour(): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      const { record } = this.state;
      const column = record && this.step !== null ? columnOf(record, this.step) : -1;
      if (this.step === null) this.host.colour(null);
      else if (record && column >= 0) this.host.colour(stepColours(record, column));
    });
  }

  private notify(): void {
    const { current, ...state } = this.state;
    this.view = { ...state, shown: this.step ?? current };
    for (const listener of [...this.listeners]) listener();
  }
}
