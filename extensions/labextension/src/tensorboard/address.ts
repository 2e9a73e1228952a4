import { PageConfig, URLExt } from '@jupyterlab/coreutils';

/** The page of a dashboard, from the `url` the server named: absolute, or under the base URL. */
export function frameUrl(url: string): string {
  const base = PageConfig.getBaseUrl();
  if (url.startsWith('/')) {
    return new URL(url, base).href;
  }
  return /^https?:/.test(url) ? url : URLExt.join(base, url);
}

/** The same address with TensorBoard's own theme switch set; the fragment holds what is shown. */
export function themed(address: string, dark: boolean): string {
  const url = new URL(address);
  url.searchParams.set('darkMode', String(dark));
  return url.href;
}
