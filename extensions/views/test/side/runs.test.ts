import type { RunSummary } from '@torch-workbench/records';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type DeletedRun, mountRuns, type RunsModel, type RunTarget } from '../../src/side';

const run = (name: string, change: Partial<RunSummary> = {}): RunSummary => ({
  name,
  path: `runs/${name}`,
  status: 'finished',
  model: 'Net',
  modes: 'bf16',
  best_accuracy: 0.5,
  step: 9,
  updated_at: Date.now() / 1000 - 60,
  checkpoint: 9,
  ...change,
});

const kept = (name: string): DeletedRun => ({
  path: `kept/${name}`,
  name,
  removed_at: new Date(2026, 1, 3, 15, 6).getTime() / 1000,
});

/** A folder of runs; each answer of its server is given by hand. */
class Disk {
  model: RunsModel = { runs: [], deleted: [] };
  readonly listeners = new Set<() => void>();
  target: RunTarget | null = null;
  readonly into = (): RunTarget | null => this.target;
  readonly onResume = vi.fn<(run: RunSummary) => Promise<void>>(() => Promise.resolve());
  readonly onLoadBest = vi.fn<(run: RunSummary) => Promise<void>>(() => Promise.resolve());
  readonly onOpen = vi.fn();
  readonly onDelete = vi.fn<(run: RunSummary) => Promise<void>>(() => Promise.resolve());
  readonly onRestore = vi.fn((one: DeletedRun) => Promise.resolve(`runs/${one.name}`));

  readonly store = {
    get: () => this.model,
    subscribe: (listener: () => void) => {
      this.listeners.add(listener);
      return () => this.listeners.delete(listener);
    },
    send: () => Promise.resolve(),
  };

  async update(model: Partial<RunsModel>): Promise<void> {
    this.model = { ...this.model, ...model };
    for (const listener of this.listeners) listener();
    await settle();
  }
}

const settle = (): Promise<unknown> => vi.advanceTimersByTimeAsync(20);
let disk: Disk;
let host: HTMLElement;
let dispose: () => void;

beforeEach(() => {
  vi.useFakeTimers();
  disk = new Disk();
  host = document.body.appendChild(document.createElement('div'));
  dispose = mountRuns(host, disk.store, disk);
});

afterEach(() => {
  dispose();
  expect(host.childElementCount).toBe(0);
  expect(disk.listeners.size).toBe(0);
  host.remove();
  vi.useRealTimers();
});

const names = (): string[] =>
  [...host.querySelectorAll('tbody td:first-child')].map((cell) => cell.textContent ?? '');
const labelled = (label: string): HTMLElement => {
  const found = host.querySelector<HTMLElement>(`[aria-label="${label}"]`);
  if (!found) throw new Error(`there is no ${label}`);
  return found;
};
const field = (): HTMLInputElement => host.querySelector('input') as HTMLInputElement;
const isShown = (selector: string): boolean => {
  const found = host.querySelector(selector);
  return found !== null && found.closest('[hidden]') === null;
};
const textOf = (selector: string): string => host.querySelector(selector)?.textContent ?? '';
const type = (text: string): void => {
  field().focus();
  field().value = text;
  field().dispatchEvent(new Event('input', { bubbles: true }));
};
const press = (target: Element, key: string): boolean =>
  target.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
const many = (count: number): RunSummary[] =>
  Array.from({ length: count }, (_, at) => run(`exp-${at + 1}`));

describe('the list of runs', () => {
  const sortBy = (label: string): void => {
    const titles = [...host.querySelectorAll<HTMLElement>('th button')];
    titles.find((one) => one.textContent === label)?.click();
  };

  it('is sorted by any column, names by their numbers, what has no value last', async () => {
    const [now, day] = [Date.now() / 1000, 86_400];
    const runs = [
      run('exp-10'),
      run('exp-9', { status: 'exception', best_accuracy: null, updated_at: now - 7_200 }),
      run('exp-2', { best_accuracy: 0.75, updated_at: now - day }),
    ];
    await disk.update({ runs });
    expect(names()).toEqual(['exp-10', 'exp-9', 'exp-2']);
    sortBy('Name');
    expect(names()).toEqual(['exp-2', 'exp-9', 'exp-10']);
    sortBy('Best acc.');
    expect(names()).toEqual(['exp-10', 'exp-2', 'exp-9']);
    sortBy('Best acc.');
    expect(names()).toEqual(['exp-2', 'exp-10', 'exp-9']);
    expect(host.querySelector('[aria-sort]')?.getAttribute('aria-sort')).toBe('descending');
    labelled('Open exp-2 in TensorBoard').click();
    expect(disk.onOpen).toHaveBeenCalledWith(runs[2]);
    expect(textOf('tbody')).toContain('exceptionnone');
  });
});

describe('a run with a checkpoint', () => {
  const fresh: RunTarget = { name: 'net-2', status: 'idle', step: 0 };
  const fault = (): string => textOf('.wb-deleted .fault p');

  it('goes on in the experiment of the notebook', async () => {
    disk.target = fresh;
    const one = run('net', { status: 'interrupted', checkpoint: 1200 });
    await disk.update({ runs: [one] });
    const button = labelled('Resume net');
    expect(button.title).toBe('Resume net from step 1,200 in net-2');
    button.click();
    await settle();
    expect(disk.onResume).toHaveBeenCalledExactlyOnceWith(one);
    expect(fault()).toBe('net-2 goes on where net was.');
    labelled('Load the best weights of net').click();
    await settle();
    expect(disk.onLoadBest).toHaveBeenCalledExactlyOnceWith(one);
    expect(fault()).toBe('The best weights of net are in net-2.');
  });

  it('says why not, where it cannot', async () => {
    const cases: [Partial<RunSummary>, RunTarget | null, string][] = [
      [{ checkpoint: null }, fresh, 'net has no checkpoint yet.'],
      [{}, null, 'Run the cells that create the experiment of net first.'],
      [
        {},
        { ...fresh, step: 3 },
        'net-2 has trained already: run its cell again, then resume net in it.',
      ],
      [{ status: 'training' }, fresh, 'net is training.'],
      [
        { status: 'finished' },
        fresh,
        'net has reached its end: exp.resume_from and exp.run(epochs=...) train it on.',
      ],
      [
        { status: 'detached' },
        fresh,
        'The ranks of net train on without their kernel: wb.attach reconnects to them.',
      ],
    ];
    for (const [change, target, sentence] of cases) {
      disk.target = target;
      await disk.update({ runs: [run('net', { status: 'stopped', ...change })] });
      const button = labelled('Resume net');
      expect(button.title).toBe(sentence);
      expect(button.getAttribute('aria-disabled')).toBe('true');
      button.click();
      await settle();
      expect(fault()).toBe(sentence);
    }
    expect(disk.onResume).not.toHaveBeenCalled();
  });

  it('says what the kernel refuses', async () => {
    disk.target = fresh;
    disk.onResume.mockRejectedValueOnce(new Error('the checkpoint is of another model'));
    // on another machine, whose end nobody has told; its lock says whether it is over
    const silent = { status: 'training', updated_at: Date.now() / 1000 - 3_600 };
    await disk.update({ runs: [run('net', silent)] });
    labelled('Resume net').click();
    await settle();
    expect(fault()).toBe('the checkpoint is of another model');
    expect(host.querySelector('[aria-busy]')).toBeNull();
  });

  it('is loaded into a model that is not being trained', async () => {
    disk.target = { name: 'net-2', status: 'training', step: 3 };
    await disk.update({ runs: [run('net')] });
    labelled('Load the best weights of net').click();
    await settle();
    expect(fault()).toBe('net-2 is training: pause it first.');
    expect(disk.onLoadBest).not.toHaveBeenCalled();
    disk.target = { ...disk.target, status: 'paused' };
    labelled('Load the best weights of net').click();
    await settle();
    expect(disk.onLoadBest).toHaveBeenCalledOnce();
  });
});

describe('a run whose kernel died and whose ranks train on', () => {
  it('is said to have no kernel, how it is taken up, and is not deleted', async () => {
    await disk.update({ runs: [run('far', { status: 'detached' }), run('near')] });
    const chip = host.querySelector<HTMLElement>('tbody .wb-state');
    expect(chip?.textContent).toBe('no kernel');
    expect(chip?.title).toBe(
      'Its kernel died but its ranks still train: wb.attach reconnects to far',
    );
    labelled('Delete far').click();
    expect(disk.onDelete).not.toHaveBeenCalled();
    expect(host.textContent).toContain(
      'The ranks of far train on: wb.attach it and stop it first.',
    );
    await disk.update({ runs: [run('far', { status: 'interrupted' }), run('near')] });
    expect([chip?.textContent, chip?.title]).toEqual(['interrupted', '']);
  });
});

describe('the filter', () => {
  it('is there where the list is long, and stays while it is in use', async () => {
    await disk.update({ runs: many(8) });
    expect(isShown('input')).toBe(false);
    await disk.update({ runs: many(9) });
    expect(isShown('input')).toBe(true);
    type('exp-3');
    await disk.update({ runs: many(3) });
    expect(isShown('input')).toBe(true);
    expect(document.activeElement).toBe(field());
  });

  it('leaves those that have every word in name, state, model or modes', async () => {
    const runs = [
      ...many(44),
      run('wide-1', { model: 'WideNet' }),
      run('wide-2', { status: 'nan', model: 'WideNet' }),
      run('other', { status: 'interrupted', modes: 'compile+fp16' }),
    ];
    await disk.update({ runs });
    const found = (text: string): string[] => {
      type(text);
      return names();
    };
    expect(found('wide')).toEqual(['wide-1', 'wide-2']);
    expect(textOf('.found')).toBe('2 of 47');
    expect(found('widenet loss')).toEqual(['wide-2']);
    expect(found('  NaN ')).toEqual(['wide-2']);
    expect(found('interrupted')).toEqual(['other']);
    expect(found('fp16')).toEqual(['other']);
    expect(found('exp-4')).toHaveLength(6);
    expect(found('nowhere')).toEqual([]);
    expect(textOf('.wb-side-empty')).toBe('No run matches “nowhere”.');
    expect(textOf('.found')).toBe('0 of 47');
    expect(found('')).toHaveLength(47);
    expect(textOf('.found')).toBe('');
  });

  it('is emptied by Escape, which then belongs to the page again', async () => {
    await disk.update({ runs: many(47) });
    const page = vi.fn();
    document.body.addEventListener('keydown', page, { once: true });
    type('exp-3');
    expect(press(field(), 'Escape')).toBe(false);
    expect(page).not.toHaveBeenCalled();
    expect([field().value, names().length]).toEqual(['', 47]);
    expect(document.activeElement).toBe(field());
    expect(press(field(), 'Escape')).toBe(true);
    expect(page).toHaveBeenCalledOnce();
  });

  it('keeps its text, its caret and the focus while the list is read again', async () => {
    await disk.update({ runs: many(47) });
    type('exp-3');
    field().setSelectionRange(2, 2);
    for (let tick = 0; tick < 3; tick += 1) {
      await disk.update({ runs: [run(`exp-3-${tick}`), ...many(47)] });
    }
    await vi.advanceTimersByTimeAsync(31_000);
    expect(document.activeElement).toBe(field());
    expect([field().value, field().selectionStart]).toEqual(['exp-3', 2]);
    expect(textOf('.found')).toBe('12 of 48');
  });
});

describe('deleting', () => {
  it('is offered for each run, and undone by one press', async () => {
    const runs = many(3);
    await disk.update({ runs });
    expect(isShown('.offer')).toBe(false);
    labelled('Delete exp-2').click();
    expect(disk.onDelete).toHaveBeenCalledExactlyOnceWith(runs[1]);
    await disk.update({ runs: [run('exp-1'), run('exp-3')], deleted: [kept('exp-2')] });
    expect(textOf('.wb-deleted .wb-sr')).toBe('exp-2 is deleted, Undo puts it back');
    expect(textOf('.offer')).toBe('Deleted exp-2Undo');
    expect(host.querySelector('.offer')?.getAttribute('title')).toBe(
      'exp-2 is removed for good at 15:06',
    );
    labelled('Undo: put exp-2 back').click();
    expect(disk.onRestore).toHaveBeenCalledExactlyOnceWith(kept('exp-2'));
    await disk.update({ runs, deleted: [] });
    expect(isShown('.offer')).toBe(false);
    expect(textOf('.wb-deleted .wb-sr')).toBe('exp-2 is back');
  });

  it('says where a run is whose place was taken meanwhile', async () => {
    await disk.update({ runs: many(1), deleted: [kept('exp-1')] });
    disk.onRestore.mockResolvedValueOnce('runs/exp-1-2');
    labelled('Undo: put exp-1 back').click();
    await settle();
    expect(textOf('.fault')).toBe('exp-1 is back in exp-1-2: there is a new exp-1.');
    labelled('Hide the message').click();
    expect(isShown('.fault')).toBe(false);
  });

  it('sends once, however often it is pressed before the answer', async () => {
    await disk.update({ runs: many(2) });
    let answer: () => void = () => undefined;
    disk.onDelete.mockReturnValueOnce(new Promise<void>((resolve) => (answer = resolve)));
    labelled('Delete exp-1').click();
    labelled('Delete exp-1').click();
    expect(disk.onDelete).toHaveBeenCalledOnce();
    expect(host.querySelector('tr[aria-busy]')?.textContent).toContain('exp-1');
    answer();
    await settle();
    expect(host.querySelector('tr[aria-busy]')).toBeNull();
  });

  it.each([
    ['training', 'exp is training: stop it first.'],
    ['paused', 'exp is paused: stop it first.'],
  ])('of a run that is %s is refused with the reason', async (status, reason) => {
    await disk.update({ runs: [run('exp', { status })] });
    const button = labelled('Delete exp');
    expect(button.getAttribute('aria-disabled')).toBe('true');
    expect(button.title).toBe(reason);
    button.click();
    expect(disk.onDelete).not.toHaveBeenCalled();
    expect(textOf('[role=alert]')).toBe(reason);
    await disk.update({ runs: [run('exp', { status: 'stopped' })] });
    labelled('Delete exp').click();
    expect(disk.onDelete).toHaveBeenCalledOnce();
    expect(isShown('[role=alert]')).toBe(false);
  });

  it('that the server refuses says why, and the run stays', async () => {
    await disk.update({ runs: many(1), deleted: [kept('old')] });
    const why = 'exp-1 was not deleted: /data/runs cannot be changed (Read-only file system).';
    disk.onDelete.mockRejectedValueOnce(new Error(why));
    labelled('Delete exp-1').click();
    await settle();
    expect(textOf('[role=alert]')).toBe(why);
    expect(names()).toEqual(['exp-1']);
    disk.onRestore.mockRejectedValueOnce(new Error('old was already restored or removed.'));
    labelled('Undo: put old back').click();
    await settle();
    expect(textOf('[role=alert]')).toBe('old was already restored or removed.');
  });

  it('by key goes from run to run, and at the end to Undo', async () => {
    await disk.update({ runs: many(3) });
    labelled('Open exp-2 in TensorBoard').focus();
    press(labelled('Open exp-2 in TensorBoard'), 'Delete');
    await disk.update({ runs: [run('exp-1'), run('exp-3')], deleted: [kept('exp-2')] });
    expect(document.activeElement).toBe(labelled('Delete exp-3'));
    press(labelled('Delete exp-3'), 'Delete');
    await disk.update({ runs: [run('exp-1')], deleted: [kept('exp-3'), kept('exp-2')] });
    expect(document.activeElement).toBe(labelled('Delete exp-1'));
    labelled('Delete exp-1').click();
    await disk.update({ runs: [], deleted: ['exp-1', 'exp-3', 'exp-2'].map(kept) });
    expect(document.activeElement).toBe(labelled('Undo: put exp-1 back'));
    expect(textOf('.more')).toBe('+2');
    expect(textOf('.wb-side-empty')).toBe('No run is left here.');
    labelled('Undo: put exp-1 back').click();
    await settle();
    await disk.update({ runs: [run('exp-1')], deleted: ['exp-3', 'exp-2'].map(kept) });
    expect(document.activeElement).toBe(labelled('Resume exp-1'));
  });

  it('keeps the focus in a row that moves to another place', async () => {
    await disk.update({ runs: many(3) });
    labelled('Delete exp-3').focus();
    await disk.update({ runs: [run('exp-3', { updated_at: Date.now() / 1000 }), ...many(2)] });
    expect(names()[0]).toBe('exp-3');
    expect(document.activeElement).toBe(labelled('Delete exp-3'));
  });

  it('is offered to be undone until it is hidden, also what another window deleted', async () => {
    await disk.update({ runs: many(1), deleted: [kept('theirs')] });
    expect(textOf('.offer')).toBe('Deleted theirsUndo');
    labelled('Hide').click();
    expect(isShown('.offer')).toBe(false);
    await disk.update({ deleted: [kept('another'), kept('theirs')] });
    expect(textOf('.offer')).toBe('Deleted anotherUndo');
    expect(textOf('.more')).toBe('');
  });

  it('shows names as text, whatever they are', async () => {
    const name = '<img src=x onerror=alert(1)>\u202e';
    await disk.update({ runs: [run(name)], deleted: [kept(name)] });
    expect(host.querySelector('img')).toBeNull();
    expect(textOf('.offer b')).toBe('<img src=x onerror=alert(1)> ');
  });
});
