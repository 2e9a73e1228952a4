import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';

/** A TensorBoard that runs behind the Jupyter server. */
export interface IDashboard {
  id: string;
  logdir: string;
  /** Where it is proxied, under the server's base URL. */
  url: string;
}

/** A run directory, as `workbench.records.RunSummary` describes it. */
export interface IRunSummary {
  name: string;
  path: string;
  status: string;
  model: string;
  modes: string;
  best_accuracy: number | null;
  step: number;
  updated_at: number;
}

/** The server extension's endpoints. Every failure is an Error with one clear sentence. */
export class WorkbenchServer {
  constructor(
    private readonly trans: TranslationBundle,
    private readonly settings = ServerConnection.makeSettings(),
  ) {}

  async runs(root: string): Promise<IRunSummary[]> {
    const query = URLExt.objectToQueryString({ root });
    const found = await this.request<{ runs: IRunSummary[] }>(`runs${query}`, 'GET');
    return found.runs;
  }

  async dashboards(): Promise<IDashboard[]> {
    return (await this.request<{ dashboards: IDashboard[] }>('tensorboard', 'GET')).dashboards;
  }

  startTensorBoard(logdir: string): Promise<IDashboard> {
    return this.request<IDashboard>('tensorboard', 'POST', { logdir });
  }

  async stopTensorBoard(id: string): Promise<void> {
    await this.request(`tensorboard/${encodeURIComponent(id)}`, 'DELETE');
  }

  private async request<T>(path: string, method: string, body?: unknown): Promise<T> {
    const url = URLExt.join(this.settings.baseUrl, 'workbench', 'api', path);
    const init: RequestInit = { method };
    if (body !== undefined) {
      init.body = JSON.stringify(body);
    }
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(url, init, this.settings);
    } catch {
      throw new Error(this.trans.__('The Jupyter server does not answer. Is it still running?'));
    }
    const text = await response.text();
    if (!response.ok) {
      throw new Error(this.sentence(response.status, text));
    }
    return (text === '' ? undefined : JSON.parse(text)) as T;
  }

  private sentence(status: number, text: string): string {
    try {
      const message: unknown = (JSON.parse(text) as { message?: unknown }).message;
      if (typeof message === 'string' && message !== '') {
        return message;
      }
    } catch {
      // Not ours: the server answered with a page of its own.
    }
    return status === 404
      ? this.trans.__(
          'The server part of Workbench is not enabled. Run "jupyter server extension enable workbench" and restart JupyterLab.',
        )
      : this.trans.__('The Jupyter server answered with status %1.', status);
  }
}
