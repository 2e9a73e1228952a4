import { PathExt } from '@jupyterlab/coreutils';
import type { Contents } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { count } from '@torch-workbench/views';
import type { IWorkbenchConnections } from '../tokens';
import { type IMemoryPart, isElsewhere, type WorkbenchServer } from '../server';
import { readHere } from './file';
import { stemOfFile } from './formats';
import type { ICaptureName } from './label';
import { deviceOf } from './memory-parts';

/** A memory file of the server's: a snapshot of the allocator, or a saved record. */
export interface IFileSide {
  /** As the contents manager knows it. */
  path: string;
  /** Which device and range of it; all of it, of the busiest device, where that is left out. */
  part?: IMemoryPart;
}

/** A capture that a kernel holds. */
export interface ICaptureSide extends ICaptureName {
  notebook: string;
  kernel?: string;
  experiment: string;
  capture: string;
}

/**
 * One of two recordings that are compared; plain data, so that a reloaded page can request them
 * again.
 */
export type IMemorySide = IFileSide | ICaptureSide;

/** Those who hold recordings. */
export interface ISources {
  server: WorkbenchServer;
  contents: Contents.IManager;
  connections: IWorkbenchConnections;
  trans: TranslationBundle;
}

/** A recording, and what a person knows it by. */
export interface ILoaded {
  bytes: ArrayBuffer;
  name: string;
}

/** A kernel is not connected yet; it may come. */
export class NotHereYet extends Error {
  constructor(
    sentence: string,
    readonly notebook: string,
  ) {
    super(sentence);
  }
}

function isFile(side: IMemorySide): side is IFileSide {
  return 'path' in side;
}

/** What distinguishes a side from another one. */
export function keyOf(side: IMemorySide): string {
  return isFile(side) ? JSON.stringify([side.path, side.part ?? {}]) : side.capture;
}

/** `snapshot.pickle`, `digits · step 43`. */
export function nameOfSide(side: IMemorySide): string {
  if (isFile(side)) {
    return PathExt.basename(side.path);
  }
  return [side.name, side.label].filter((part) => part !== '').join(' · ');
}

/** What the name of a file made of it has. */
export function stemOfSide(side: IMemorySide): string {
  return isFile(side) ? stemOfFile(nameOfSide(side)) : nameOfSide(side);
}

/** The folder that it is in, or its notebook. */
export function folderOf(side: IMemorySide): string {
  return PathExt.dirname(isFile(side) ? side.path : side.notebook);
}

/**
 * Fetches a recording from who holds it.
 *
 * @throws NotHereYet where the notebook that holds it is closed, or its kernel not connected
 */
export async function load(
  side: IMemorySide,
  sources: ISources,
  signal: AbortSignal,
): Promise<ILoaded> {
  if (isFile(side)) {
    return loadFile(side, sources, signal);
  }
  const { notebook, experiment, capture } = side;
  const connection = sources.connections.forHolder(side);
  if (connection?.status !== 'open' || connection.store === null) {
    throw new NotHereYet(whyNot(side, connection?.status, sources.trans), notebook);
  }
  const bytes = await connection.store.fetchRecord(experiment, capture);
  return { bytes, name: nameOfSide(side) };
}

function whyNot(side: ICaptureSide, status: string | undefined, trans: TranslationBundle): string {
  const name = nameOfSide(side);
  switch (status) {
    case undefined:
      return trans.__('%1 is held by the kernel of %2.', name, side.notebook);
    case 'waiting':
    case 'lost':
      return trans.__('Waiting for the kernel of %1…', side.notebook);
    default:
      return trans.__(
        'The kernel of %1 was restarted or has not imported Workbench, so %2 is not there. Run the notebook’s cells again.',
        side.notebook,
        name,
      );
  }
}

async function loadFile(
  { path, part = {} }: IFileSide,
  { server, contents, trans }: ISources,
  signal: AbortSignal,
): Promise<ILoaded> {
  const name = PathExt.basename(path);
  const local = contents.localPath(path);
  try {
    const found = await server.memoryRecord(local, part, signal);
    if (found instanceof ArrayBuffer) {
      return { bytes: found, name: named(name, part, trans) };
    }
    const { num_events: events, most, proposed } = found;
    const device = deviceOf(found);
    const whole: IMemoryPart = device === undefined ? {} : { device };
    const [start, end] = proposed;
    // Too long to be shown whole: the range around its peak has all that the peak is made of.
    const chosen = events > most ? { ...whole, start, end } : whole;
    const again = await server.memoryRecord(local, chosen, signal);
    if (again instanceof ArrayBuffer) {
      return { bytes: again, name: named(name, chosen, trans) };
    }
  } catch (error) {
    if (!isElsewhere(error) || !name.endsWith('.safetensors')) {
      throw error;
    }
    return { bytes: await readHere(contents, path), name };
  }
  throw new Error(trans.__('%1 cannot be read as one recording.', name));
}

/** `snapshot.pickle, cuda:1, events 1,200 to 9,000`. */
function named(name: string, part: IMemoryPart, trans: TranslationBundle): string {
  const { device, start, end } = part;
  const parts = [name];
  if (device !== undefined) {
    parts.push(`cuda:${device}`);
  }
  if (start !== undefined && end !== undefined) {
    parts.push(trans.__('events %1 to %2', count(start), count(end)));
  }
  return parts.join(', ');
}
