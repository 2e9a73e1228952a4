/** The place of the flame, which is loaded when a person first opens it. */
import { h } from '../graph/dom';
import type { Palette } from '../graph/theme';
import type { Model, Within } from './model';
import { failed, unloaded, type Parts } from './part';

export interface FlameEvents {
  /** Narrows everything on screen to some blocks, or with null no longer. */
  only: (within: Within | null) => void;
  /** Shows the flame again: something was chosen in it. */
  redraw: () => void;
  /** Says something to those who do not see the drawing. */
  say: (text: string) => void;
}

type Flame = InstanceType<Awaited<ReturnType<Parts['flame']>>['Flame']>;

export class FlameFace {
  readonly element = h('section', { class: 'wv-flame', 'aria-label': 'Allocated by' });
  private flame: Flame | null = null;
  private loading = false;
  private over = false;

  constructor(
    private readonly load: Parts['flame'],
    private readonly events: FlameEvents,
  ) {}

  show(model: Model, palette: Palette, block: number | null): void {
    if (this.flame) this.flame.show(model, palette, block);
    else if (!this.loading) void this.begin();
  }

  /** Leaves the part that fills the width; whether it had been entered. */
  back(): boolean {
    return this.flame?.back() ?? false;
  }

  /** Carries out a key of the drawing. */
  key(event: KeyboardEvent): boolean {
    return this.flame?.key(event) ?? false;
  }

  dispose(): void {
    this.over = true;
    this.flame?.dispose();
  }

  private async begin(): Promise<void> {
    this.loading = true;
    this.element.replaceChildren(h('p', { class: 'wv-note wv-none' }, 'Loading'));
    try {
      const { Flame } = await this.load();
      if (this.over) return;
      this.flame = new Flame(this.events);
      this.element.replaceChildren(this.flame.element);
      this.events.redraw();
    } catch (reason) {
      const said = failed(unloaded('Flame', reason), () => void this.begin());
      this.element.replaceChildren(h('p', { class: 'wv-none' }, ...said));
    }
  }
}
