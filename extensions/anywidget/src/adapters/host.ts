/**
 * What a widget's host hands over, as far as it is used here. anywidget documents the model;
 * `widget_manager` is JupyterLab's manager there and something else, or nothing, elsewhere.
 */
export interface WidgetModel {
  get(name: string): unknown;
  on(event: string, callback: (...values: never[]) => void): void;
  off(event: string, callback?: (...values: never[]) => void): void;
  send(content: unknown): void;
  set(name: string, value: unknown): void;
  save_changes(): void;
  readonly widget_manager?: unknown;
}

export interface RenderProps {
  readonly model: WidgetModel;
  readonly el: HTMLElement;
}

/** A comm as `@jupyter-widgets/base` wraps it. */
export interface WidgetComm {
  /** JupyterLab's comm; its interface does not name the promise of its subshell, the object does. */
  readonly jsServicesComm?: {
    readonly commsOverSubshells?: string;
    readonly subshellStarted?: Promise<void>;
  };
  open(data: unknown): void;
  send(data: unknown): void;
  on_msg(callback: (message: CommMessage) => void): void;
  on_close(callback: () => void): void;
  close(): void;
}

export interface CommMessage {
  readonly content: { readonly data: Record<string, unknown> };
  readonly buffers?: readonly (ArrayBuffer | ArrayBufferView)[];
}

/** A Lumino signal. */
interface Signal<T> {
  connect(slot: (sender: unknown, value: T) => void): unknown;
  disconnect(slot: (sender: unknown, value: T) => void): unknown;
}

export interface CommManager {
  _create_comm(target: string, id?: string, data?: unknown): Promise<WidgetComm>;
  readonly kernel?: {
    readonly info?: Promise<unknown>;
    readonly supportsSubshells?: boolean;
    readonly connectionStatus?: string;
    readonly statusChanged?: Signal<string>;
    readonly connectionStatusChanged?: Signal<string>;
  } | null;
}

/** The manager, if it can open comms (JupyterLab, Notebook 7); null in Colab and VS Code. */
export function commManager(model: WidgetModel): CommManager | null {
  const manager = model.widget_manager as Partial<CommManager> | undefined;
  const able = typeof manager?._create_comm === 'function' && manager.kernel;
  return able ? (manager as CommManager) : null;
}
