/** What a person has opened or closed stays so, in this browser. */
export function remembered(key: string): boolean | null {
  try {
    const value = localStorage.getItem(key);
    return value === null ? null : value === 'yes';
  } catch {
    return null; // a page may be denied any storage
  }
}

export function remember(key: string, value: boolean): void {
  try {
    localStorage.setItem(key, value ? 'yes' : 'no');
  } catch {
    // Nothing is lost but the memory of it.
  }
}
