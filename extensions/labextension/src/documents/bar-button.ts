/** A button that looks like those of the view in whose bar it stands. */
export function barButton(text: string, title: string, run: () => void): HTMLButtonElement {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'wv-btn';
  button.textContent = text;
  button.title = title;
  button.addEventListener('click', run);
  return button;
}
