/**
 * One tab stop for a group of controls; arrows, Home and End move inside it. Moving never presses:
 * a mode switch costs time.
 */
export function roving(group: HTMLElement, items: () => readonly HTMLElement[]): void {
  group.addEventListener('keydown', (event) => {
    const all = items();
    const at = all.indexOf(event.target as HTMLElement);
    if (at < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    const target = {
      ArrowRight: at + 1,
      ArrowDown: at + 1,
      ArrowLeft: at - 1,
      ArrowUp: at - 1,
      Home: 0,
      End: all.length - 1,
    }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const next = all[(target + all.length) % all.length];
    if (next) focusOne(all, next);
  });
  group.addEventListener('focusin', (event) => {
    const all = items();
    if (all.includes(event.target as HTMLElement)) setStop(all, event.target as HTMLElement);
  });
}

function focusOne(all: readonly HTMLElement[], next: HTMLElement): void {
  setStop(all, next);
  next.focus();
}

/** Makes `stop` the one that Tab reaches. */
export function setStop(all: readonly HTMLElement[], stop: HTMLElement): void {
  for (const item of all) {
    const index = item === stop ? 0 : -1;
    if (item.tabIndex !== index || !item.hasAttribute('tabindex')) item.tabIndex = index;
  }
}
