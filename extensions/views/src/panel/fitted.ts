/**
 * Makes a text field as wide as what is in it needs, from its own width on: a number whose end is
 * cut off reads as another number. Returns what is to be called after `input.value` was set.
 */
export function fitted(input: HTMLInputElement): () => void {
  const fit = (): void => input.style.setProperty('--wb-length', String(input.value.length));
  input.addEventListener('input', fit);
  return fit;
}
