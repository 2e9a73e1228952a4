import { PageConfig, URLExt } from '@jupyterlab/coreutils';

/** The page of a dashboard, from the `url` the server named: absolute, or under the base URL. */
export function frameUrl(url: string): string {
  const base = PageConfig.getBaseUrl();
  if (url.startsWith('/')) {
    return new URL(url, base).href;
  }
  return /^https?:/.test(url) ? url : URLExt.join(base, url);
}

/** What a person looks at first; TensorBoard sorts by name, and memory comes before the loss. */
const FIRST = ['train/loss', 'val/loss', 'train/accuracy', 'val/accuracy'];

/** The same address with loss and accuracy pinned above the rest; what a run has not is left out. */
export function pinned(address: string): string {
  const url = new URL(address);
  const pinned = FIRST.map((tag) => ({ plugin: 'scalars', tag }));
  url.searchParams.set('pinnedCards', JSON.stringify(pinned));
  return url.href;
}

/** The same address with TensorBoard's own theme switch set; the fragment holds what is shown. */
export function themed(address: string, dark: boolean): string {
  const url = new URL(address);
  url.searchParams.set('darkMode', String(dark));
  return url.href;
}
