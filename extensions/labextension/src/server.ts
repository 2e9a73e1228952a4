import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { type Overview, readOverview } from '@torch-workbench/views/overview';

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
  /** Step of the newest checkpoint; null if there is none. */
  checkpoint: number | null;
}

/** A run that was deleted and can be put back, as `workbench.server.deleted_runs` describes it. */
export interface IDeletedRun {
  path: string;
  name: string;
  removed_at: number;
}

/** Which part of a memory file is meant; what is left out is all of it, of the busiest device. */
export interface IMemoryPart {
  device?: number;
  /** Events from here up to `end`, which is not among them. */
  start?: number;
  end?: number;
}

/** A failure that the server has a sentence for. */
export class ServerError extends Error {
  constructor(
    sentence: string,
    /** Of HTTP. */
    readonly status: number,
    /** Whether it was Workbench's part of the server that answered. */
    readonly isOurs: boolean,
  ) {
    super(sentence);
  }
}

/** Whether a file, or Workbench, is not where the server is: a page itself may read a record then. */
export function isElsewhere(error: unknown): boolean {
  return error instanceof ServerError && (!error.isOurs || error.status === 501);
}

/** The server extension's endpoints. Every failure is an Error with one clear sentence. */
export class WorkbenchServer {
  constructor(
    private readonly trans: TranslationBundle,
    private readonly settings = ServerConnection.makeSettings(),
  ) {}

  /**
   * What the contents service knows a file or folder by; null outside the folder Jupyter serves. A
   * kernel names it from the file system's root, perhaps through a link, and the page receives a
   * shortened name of Jupyter's root at most: the server compares the files themselves.
   */
  async contentsPath(name: string): Promise<string | null> {
    const query = URLExt.objectToQueryString({ of: name });
    return (await this.request<{ path: string | null }>(`path${query}`, 'GET')).path;
  }

  /** The runs below a folder, and those that were deleted there and can be put back. */
  runs(root: string): Promise<{ runs: IRunSummary[]; deleted: IDeletedRun[] }> {
    return this.request(`runs${URLExt.objectToQueryString({ root })}`, 'GET');
  }

  /** Deletes a run; it can be put back for a while. */
  async deleteRun(path: string): Promise<void> {
    await this.request(`runs${URLExt.objectToQueryString({ path })}`, 'DELETE');
  }

  /** Puts a deleted run back; resolves to where it is again. */
  async restoreRun(path: string): Promise<string> {
    return (await this.request<{ path: string }>('runs/restore', 'POST', { path })).path;
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

  /**
   * The record of a memory file, read in a process of its own; of one that is too long to be shown
   * at once, and of one of several devices none of which is named, what it looks like from afar.
   */
  async memoryRecord(
    path: string,
    part: IMemoryPart & { overview?: boolean },
    signal: AbortSignal,
  ): Promise<ArrayBuffer | Overview> {
    const response = await this.answer('memory/record', 'POST', { path, ...part }, signal);
    return response.headers.get('Content-Type') === 'application/octet-stream'
      ? response.arrayBuffer()
      : readOverview(((await response.json()) as { overview?: unknown }).overview);
  }

  /** The answer to a question of a memory file (`workbench/memory/simulation/questions.py`). */
  async askMemory(
    path: string,
    part: IMemoryPart,
    question: object,
    signal: AbortSignal,
  ): Promise<object> {
    const body = { path, ...part, question };
    const response = await this.answer('memory/ask', 'POST', body, signal);
    return ((await response.json()) as { answer: object }).answer;
  }

  private async request<T>(path: string, method: string, body?: unknown): Promise<T> {
    const text = await (await this.answer(path, method, body)).text();
    return (text === '' ? undefined : JSON.parse(text)) as T;
  }

  private async answer(
    path: string,
    method: string,
    body?: unknown,
    signal?: AbortSignal,
  ): Promise<Response> {
    const url = URLExt.join(this.settings.baseUrl, 'workbench', 'api', path);
    const init: RequestInit = { method, signal: signal ?? null };
    if (body !== undefined) {
      init.body = JSON.stringify(body);
    }
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(url, init, this.settings);
    } catch {
      throw new Error(this.trans.__('The Jupyter server does not answer. Is it still running?'));
    }
    if (!response.ok) {
      throw this.failure(response.status, await response.text());
    }
    return response;
  }

  private failure(status: number, text: string): ServerError {
    try {
      const message: unknown = (JSON.parse(text) as { message?: unknown }).message;
      if (typeof message === 'string' && message !== '') {
        return new ServerError(message, status, true);
      }
    } catch {
      // Not ours: the server answered with a page of its own.
    }
    return new ServerError(this.otherSentence(status), status, false);
  }

  private otherSentence(status: number): string {
    return status === 404
      ? this.trans.__(
          'The server part of Workbench is not enabled. Run "jupyter server extension enable workbench" and restart JupyterLab.',
        )
      : this.trans.__('The Jupyter server answered with status %1.', status);
  }
}
