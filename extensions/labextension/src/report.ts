import { Notification } from '@jupyterlab/apputils';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { messageOf } from '@torch-workbench/views';

type Execute<T> = (args: ReadonlyPartialJSONObject) => Promise<T>;

/** Wraps a command so that its failure is read by the person who ran it, not only in a console. */
export function reporting<T>(execute: Execute<T>): Execute<T | undefined> {
  return async (args) => {
    try {
      return await execute(args);
    } catch (error) {
      report(error);
      return undefined;
    }
  };
}

/** Shows an error's sentence as a notification. */
export function report(error: unknown): void {
  Notification.error(messageOf(error), { autoClose: 8000 });
}
