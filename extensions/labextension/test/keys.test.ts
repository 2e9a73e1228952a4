import { CommandRegistry } from '@lumino/commands';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import schema from '../schema/plugin.json';
import { keepKeys } from '../src/keys';

const commands = new CommandRegistry();
const ran: string[] = [];
for (const [id, keys] of [
  ['insert-below', 'B'],
  ['cut', 'X'],
  ['run', 'Shift Enter'],
  ['run-in-place', 'Ctrl Enter'],
  ['up', 'ArrowUp'],
  ['save', 'Ctrl S'],
] as const) {
  commands.addCommand(id, { execute: () => void ran.push(id) });
  commands.addKeyBinding({ command: id, keys: [keys], selector: '.jp-Notebook' });
}

/** As `@lumino/application` does: on the way down. */
const application = (event: KeyboardEvent): void => commands.processKeydownEvent(event);
const notebook = document.createElement('div');
const heard = vi.fn();
let stop: () => void;

beforeEach(() => {
  ran.length = 0;
  heard.mockClear();
  notebook.className = 'jp-Notebook';
  notebook.innerHTML =
    '<div class="wb wb-panel"><button id="ours"></button></div>' +
    '<div class="wv-view"><select id="select"><option>a</option></select></div>' +
    '<button id="theirs"></button>';
  notebook.addEventListener('keydown', heard);
  document.body.append(notebook);
  document.addEventListener('keydown', application, true);
  stop = keepKeys(window);
});

afterEach(() => {
  stop();
  document.removeEventListener('keydown', application, true);
  notebook.remove();
});

function press(id: string, key: string, init: KeyboardEventInit = {}): boolean {
  const code = key.length === 1 ? key.toUpperCase().charCodeAt(0) : { Enter: 13, ArrowUp: 38 }[key];
  const event = new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...init });
  Object.defineProperty(event, 'keyCode', { value: code });
  return document.getElementById(id)?.dispatchEvent(event) ?? false;
}

describe('keys in a view', () => {
  it('reach neither the shortcuts of the notebook nor the notebook itself', () => {
    for (const id of ['ours', 'select']) {
      for (const key of ['b', 'x', 'ArrowUp']) expect(press(id, key)).toBe(true);
      press(id, 'Enter', { shiftKey: true });
      press(id, 'Enter', { ctrlKey: true });
    }
    expect(ran).toEqual([]);
    expect(heard).not.toHaveBeenCalled();
  });

  it('reach the view', () => {
    const own = vi.fn();
    document.querySelector('.wb-panel')?.addEventListener('keydown', own);
    press('ours', 'b');
    press('ours', 'b');
    expect(own).toHaveBeenCalledTimes(2);
  });

  it('are the application’s with Ctrl, before and after others', () => {
    press('ours', 's', { ctrlKey: true });
    press('ours', 'b');
    press('ours', 's', { ctrlKey: true });
    expect(ran).toEqual(['save', 'save']);
    press('ours', 'c', { ctrlKey: true });
    expect(heard).toHaveBeenCalledOnce(); // lumino keeps those that it has a command for
  });

  it('are for the shortcuts of the settings in a tab of ours, but not while a person types', () => {
    const tab = document.createElement('div');
    tab.className = 'jp-Workbench-document';
    tab.innerHTML =
      '<div class="wv-view"><canvas id="canvas" tabindex="0"></canvas><input id="input">' +
      '<select id="choice"><option>capture</option></select></div>';
    document.body.append(tab);
    const disposables = schema['jupyter.lab.shortcuts']
      .filter(({ keys }) => keys[0].length === 1)
      .map((shortcut) => {
        const { command } = shortcut;
        commands.addCommand(command, { execute: () => void ran.push(command) });
        return commands.addKeyBinding(shortcut);
      });
    expect(disposables).toHaveLength(4);
    for (const id of ['canvas', 'input', 'choice']) {
      document.getElementById(id)?.focus();
      press(id, 'c');
      press(id, 'x');
    }
    expect(ran).toEqual(['workbench:compare-with', 'workbench:swap-sides']);
    tab.remove();
  });

  it('elsewhere are left alone', () => {
    press('theirs', 'b');
    press('theirs', 'q');
    expect(ran).toEqual(['insert-below']);
    expect(heard).toHaveBeenCalledOnce();
    stop();
    press('ours', 'x');
    expect(ran).toEqual(['insert-below', 'cut']);
  });
});
