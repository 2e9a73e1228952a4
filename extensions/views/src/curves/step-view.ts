/** The part of the steps that charts beside each other show, and the step they are read at. */
export class StepView {
  /** First and last step shown; null: all of them, and those to come. */
  range: readonly [number, number] | null = null;
  /** The step a person points at. */
  pointed: number | null = null;
  private readonly listeners = new Set<() => void>();

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Shows the steps between two, in any order; null shows all. */
  show(range: readonly [number, number] | null): void {
    const ends = range && ([...range].map(Math.round).sort((a, b) => a - b) as [number, number]);
    // one step is no range
    if (ends && ends[1] - ends[0] < 1) return;
    this.range = ends;
    this.notify();
  }

  point(step: number | null): void {
    if (step === this.pointed) return;
    this.pointed = step;
    this.notify();
  }

  private notify(): void {
    for (const listener of [...this.listeners]) listener();
  }
}
