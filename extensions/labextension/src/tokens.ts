import type { NotebookPanel } from '@jupyterlab/notebook';
import type { PacedStore } from './connection/paced';
import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';

/**
 * How far a notebook's kernel has come.
 *
 * - `none`: no kernel.
 * - `waiting`: a kernel that has not answered yet whether Workbench is there.
 * - `absent`: a kernel in which Workbench has not been imported.
 * - `open`: the channels are open; `store` is there.
 * - `lost`: the connection to the kernel is interrupted; it comes back by itself.
 */
export type ConnectionStatus = 'none' | 'waiting' | 'absent' | 'open' | 'lost';

/** One notebook and what Workbench knows of its kernel. Lives as long as the notebook's panel. */
export interface IConnection extends IDisposable {
  readonly panel: NotebookPanel;
  /** The notebook's path, relative to the server's root. */
  readonly path: string;
  /** Id of its kernel, which stays while the notebook is renamed; null where there is none. */
  readonly kernelId: string | null;
  readonly status: ConnectionStatus;
  /** While it waits: why the channels could not be opened yet. Empty where nothing is known. */
  readonly detail: string;
  /** A new object whenever the channels were opened anew; null unless open or lost. */
  readonly store: PacedStore | null;
  /** Id of the experiment that the side panel shows, null when there is none. */
  readonly experiment: string | null;
  select(experiment: string): void;
  /** The status, the store or the selected experiment changed. */
  readonly changed: ISignal<IConnection, void>;
}

/** Who holds something: a kernel, and its notebook as it was called when that was noted. */
export interface IHolder {
  readonly notebook: string;
  /** Left out by those who noted it before kernels were. */
  readonly kernel?: string;
}

/** The kernels of all open notebooks. */
export interface IWorkbenchConnections {
  /**
   * The active notebook's; with a capture's tab in front, that of the notebook it was captured in;
   * else the one before.
   */
  readonly current: IConnection | null;
  readonly currentChanged: ISignal<IWorkbenchConnections, IConnection | null>;
  /** A connection was added, removed or changed. */
  readonly changed: ISignal<IWorkbenchConnections, void>;
  all(): readonly IConnection[];
  /** The open notebook with this path. */
  forPath(path: string): IConnection | null;
  /**
   * That to the kernel which holds something: an open notebook of it, of this path or another,
   * since a notebook may be renamed. Without a known kernel, the open notebook with this path.
   */
  forHolder(holder: IHolder): IConnection | null;
  /** The notebook that contains this node of the page. */
  forNode(node: Node): IConnection | null;
}

export const IWorkbenchConnections = new Token<IWorkbenchConnections>(
  'torch-workbench:IWorkbenchConnections',
  'Live connections to the experiments in the kernels of open notebooks.',
);

/** The settings of `schema/plugin.json`, typed, each with its default before they are loaded. */
export interface IWorkbenchSettings {
  /** Milliseconds between two redraws of the panels and the status bar. */
  readonly refreshInterval: number;
  /** Most points kept in the browser of one curve. */
  readonly maxPoints: number;
  /** Minutes a dashboard may be out of sight before it is stopped; 0 leaves that to the server. */
  readonly tensorboardIdleMinutes: number;
  /** Open the side panel when the active notebook gets its first experiment. */
  readonly openSidePanel: boolean;
  /** Show progress in the status bar. */
  readonly showStatus: boolean;
  readonly changed: ISignal<IWorkbenchSettings, void>;
}

export const IWorkbenchSettings = new Token<IWorkbenchSettings>(
  'torch-workbench:IWorkbenchSettings',
  'Settings of Workbench.',
);

/** What a view requests with a `workbench:open` event, and the documents' commands take. */
export interface IOpenRequest {
  kind: 'graph' | 'memory' | 'diff' | 'memory-diff' | 'tensorboard' | 'goto';
  experiment?: string;
  capture?: string;
  /** Of a diff that is not stored: the ids of the two captures, the older first. */
  compare?: readonly [string, string];
  path?: string;
  source?: ISourceLine;
}

/** A line of the user's code: a notebook cell by its execution count, or a file. */
export interface ISourceLine {
  filename: string;
  line: number;
  cell: number | null;
  function?: string;
  text?: string;
}

/** Ids of the commands that more than one plugin refers to. */
export const CommandIDs = {
  createClassifier: 'workbench:create-classifier',
  showSidePanel: 'workbench:show-side-panel',
  toggleTraining: 'workbench:toggle-training',
  step: 'workbench:step',
  stop: 'workbench:stop',
  captureGraph: 'workbench:capture-graph',
  captureMemory: 'workbench:capture-memory',
  compareGraphs: 'workbench:compare-graphs',
  compareMemory: 'workbench:compare-memory',
  compareMemoryFiles: 'workbench:compare-memory-files',
  compareMemoryCapture: 'workbench:compare-memory-capture',
  saveMemoryDiff: 'workbench:save-memory-diff',
  openGraph: 'workbench:open-graph',
  openMemory: 'workbench:open-memory',
  showCapture: 'workbench:show-capture',
  captureHere: 'workbench:capture-here',
  olderCapture: 'workbench:older-capture',
  newerCapture: 'workbench:newer-capture',
  compareWith: 'workbench:compare-with',
  swapSides: 'workbench:swap-sides',
  saveCapture: 'workbench:save-capture',
  exportAs: 'workbench:export',
  copyExportLine: 'workbench:copy-export-line',
  openTensorBoard: 'workbench:open-tensorboard',
  openRunTensorBoard: 'workbench:open-run-tensorboard',
  reloadTensorBoard: 'workbench:reload-tensorboard',
  stopTensorBoard: 'workbench:stop-tensorboard',
  insertCompileReport: 'workbench:insert-compile-report',
  goto: 'workbench:go-to-source',
} as const;
