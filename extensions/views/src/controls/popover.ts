import { h, setAttr, uniqueId } from '../dom';

export interface PopoverContent {
  readonly title: HTMLElement;
  readonly body: readonly HTMLElement[];
  /** With buttons in it: opened by a press only, and a dialog instead of a tooltip. */
  readonly interactive: boolean;
}

/** Below the control in the panel; to its left, level with it, in the side panel. */
export type Placement = 'below' | 'left';

const OPEN_AFTER_MS = 300;
const CLOSE_AFTER_MS = 150;
const GAP = 8;

/**
 * One popover at a time, for reasons and remedies. Escape closes it and gives the focus back; it
 * stays open while pointed at. It is in the browser's top layer where there is one, so that a
 * notebook's scrolling output area does not cut it off.
 */
export class Popover {
  private el: HTMLElement | null = null;
  private anchor: HTMLElement | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private pinned = false;

  constructor(
    private readonly host: HTMLElement,
    private readonly placement: Placement,
  ) {
    host.addEventListener('keydown', this.onKey);
    document.addEventListener('pointerdown', this.onOutside, true);
    document.addEventListener('scroll', this.onScroll, true);
  }

  get openFor(): HTMLElement | null {
    return this.anchor;
  }

  /** Shows `content` when `anchor` is hovered, focused or pressed. */
  attach(anchor: HTMLElement, content: () => PopoverContent | null): void {
    const hoverable = (): PopoverContent | null => {
      const made = content();
      return made && !made.interactive ? made : null;
    };
    anchor.addEventListener('pointerenter', () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => {
        const made = this.pinned ? null : hoverable();
        if (made) this.open(anchor, made);
      }, OPEN_AFTER_MS);
    });
    anchor.addEventListener('pointerleave', () => this.closeSoon());
    anchor.addEventListener('focus', () => {
      const made = anchor.matches(':focus-visible') ? hoverable() : null;
      if (made) this.open(anchor, made);
    });
    anchor.addEventListener('blur', (event) => {
      if (!this.el?.contains(event.relatedTarget as Node | null)) this.closeFor(anchor);
    });
  }

  /** Opens at once and keeps it open until Escape, a press elsewhere, or `close`. */
  pin(anchor: HTMLElement, content: PopoverContent): void {
    this.open(anchor, content);
    this.pinned = true;
    if (content.interactive) this.el?.querySelector<HTMLElement>('button')?.focus();
  }

  /**
   * What it says of `from` has changed, and `to` is in its place: shows `content` there, with the
   * focus where it was. Without effect while something else is open, or nothing. At the same control
   * the popover stays and its words change: figures may do so ten times a second.
   */
  renew(from: HTMLElement, to: HTMLElement, content: PopoverContent): void {
    if (this.anchor !== from) return;
    const hadFocus = this.el?.contains(document.activeElement) ?? false;
    if (from !== to || this.el?.role !== roleOf(content)) {
      const { pinned } = this;
      this.close();
      this.open(to, content);
      this.pinned = pinned;
    } else {
      this.fill(this.el, content);
      this.place();
    }
    const first = this.el?.querySelector<HTMLElement>('button');
    if (hadFocus) (first ?? to).focus();
  }

  close(): void {
    clearTimeout(this.timer);
    const hadFocus = this.el?.contains(document.activeElement);
    const anchor = this.anchor;
    setAttrs(anchor, null);
    this.el?.remove();
    this.el = null;
    this.anchor = null;
    this.pinned = false;
    if (hadFocus) anchor?.focus();
  }

  dispose(): void {
    this.close();
    this.host.removeEventListener('keydown', this.onKey);
    document.removeEventListener('pointerdown', this.onOutside, true);
    document.removeEventListener('scroll', this.onScroll, true);
  }

  private open(anchor: HTMLElement, content: PopoverContent): void {
    if (this.anchor === anchor) return;
    this.close();
    const id = uniqueId('pop');
    const el = h('div', { id, class: `wb-pop is-${this.placement}`, role: roleOf(content) });
    this.fill(el, content);
    el.addEventListener('pointerenter', () => clearTimeout(this.timer));
    el.addEventListener('pointerleave', () => this.closeSoon());
    this.host.append(el);
    this.el = el;
    this.anchor = anchor;
    setAttrs(anchor, content.interactive ? { controls: id } : { describedby: id });
    if ('showPopover' in el) {
      setAttr(el, 'popover', 'manual');
      el.showPopover();
    }
    this.place();
  }

  private fill(el: HTMLElement, { title, body, interactive }: PopoverContent): void {
    title.id = `${el.id}-title`;
    if (interactive) setAttr(el, 'aria-labelledby', title.id);
    el.replaceChildren(title, ...body);
  }

  private place(): void {
    const { el, anchor } = this;
    if (!el || !anchor) return;
    const at = anchor.getBoundingClientRect();
    const size = el.getBoundingClientRect();
    const most = { x: innerWidth - size.width - GAP, y: innerHeight - size.height - GAP };
    const below = this.placement === 'below';
    const wanted = below
      ? { x: at.left - 12, y: at.bottom + GAP }
      : { x: at.left - size.width - 2 * GAP, y: at.top - 12 };
    // low in the page it is above the control, where there is room
    const above = at.top - size.height - GAP;
    const isAbove = below && wanted.y > most.y && above >= GAP;
    el.classList.toggle('is-above', isAbove);
    const x = Math.max(GAP, Math.min(wanted.x, most.x));
    const y = isAbove ? above : Math.max(GAP, Math.min(wanted.y, most.y));
    el.style.left = `${x}px`;
    el.style.top = `${y}px`;
    const tip = below ? at.left + at.width / 2 - x - 4 : at.top + at.height / 2 - y - 4;
    el.style.setProperty('--tip', `${Math.max(8, tip)}px`);
  }

  private closeFor(anchor: HTMLElement): void {
    if (this.anchor === anchor && !this.pinned) this.close();
  }

  private closeSoon(): void {
    clearTimeout(this.timer);
    if (this.pinned) return;
    this.timer = setTimeout(() => {
      if (document.activeElement !== this.anchor) this.close();
    }, CLOSE_AFTER_MS);
  }

  private readonly onKey = (event: KeyboardEvent): void => {
    if (event.key !== 'Escape' || !this.el) return;
    event.stopPropagation();
    event.preventDefault();
    this.close();
  };

  private readonly onOutside = (event: Event): void => {
    const path = event.composedPath();
    const inside =
      (this.el && path.includes(this.el)) || (this.anchor && path.includes(this.anchor));
    if (this.el && !inside) this.close();
  };

  private readonly onScroll = (): void => this.place();
}

function roleOf({ interactive }: PopoverContent): string {
  return interactive ? 'dialog' : 'tooltip';
}

function setAttrs(
  anchor: HTMLElement | null,
  state: { controls?: string; describedby?: string } | null,
): void {
  if (!anchor) return;
  setAttr(anchor, 'aria-controls', state?.controls ?? null);
  setAttr(anchor, 'aria-expanded', state?.controls ? 'true' : null);
  if (anchor.dataset['reason'] === undefined) {
    setAttr(anchor, 'aria-describedby', state?.describedby ?? null);
  }
}
