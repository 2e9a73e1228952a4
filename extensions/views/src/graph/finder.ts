/** The search of the view: which match is selected, and which one comes next. */
import type { Item } from './groups';
import type { Drawing } from './drawing';

export interface FinderParts {
  field: () => HTMLInputElement;
  state: () => Drawing | null;
  select: (item: Item | null) => void;
  refresh: () => void;
}

export class Finder {
  /** Position of the selected match. */
  at = 0;

  constructor(private readonly parts: FinderParts) {}

  /** Searches anew and selects the first match. */
  find(query: string): void {
    const state = this.parts.state();
    state?.search(query);
    this.at = -1;
    if (state?.matches.length) this.next(false);
    else this.parts.refresh();
  }

  /** Selects the next match, or the one before; after the last comes the first. */
  next(backwards: boolean): void {
    const matches = this.parts.state()?.matches ?? [];
    if (matches.length === 0) return;
    this.at = (this.at + (backwards ? -1 : 1) + matches.length) % matches.length;
    this.parts.select(matches[this.at] ?? null);
  }

  focus(): void {
    this.parts.field().focus();
    this.parts.field().select();
  }

  clear(): void {
    this.parts.field().value = '';
    this.find('');
  }
}
