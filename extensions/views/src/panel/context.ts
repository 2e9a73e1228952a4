import type { CommandArgs, Connection, ExperimentModel } from '../kernel';

/** What may be opened in a tab of its own, or below the panel where tabs cannot be opened. */
export interface OpenRequest {
  readonly kind: 'graph' | 'memory' | 'diff' | 'memory-diff' | 'tensorboard' | 'goto';
  readonly experiment: string;
  readonly capture?: string;
  /** Of a diff that is not stored: the two captures, the older first. */
  readonly compare?: readonly [string, string];
  readonly path?: string;
  readonly source?: unknown;
}

/** What the rows of a panel may do. */
export interface PanelContext {
  readonly experiment: string;
  /** Sends a command. A refusal is shown under the panel and resolves to false. */
  run<Name extends keyof CommandArgs>(name: Name, args: CommandArgs[Name]): Promise<boolean>;
  /** Opens a tab, or the view below the panel; false when neither is possible here. */
  open(request: Omit<OpenRequest, 'experiment'>): boolean;
  /** Shows an error under the panel; an empty text clears it. */
  fail(message: string): void;
}

/** What a row is drawn from. */
export interface RowState {
  readonly model: ExperimentModel;
  readonly connection: Connection;
  /** The kernel cannot be queried now; why, in one sentence. Empty when it can. */
  readonly locked: string;
}

/** A row of the panel: built once, patched ever after. */
export interface Row {
  readonly el: HTMLElement;
  update(state: RowState): void;
  dispose?(): void;
}
