import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Signal } from '@lumino/signaling';
import type { WorkbenchServer } from '../../src/server';
import { IdleStopper } from '../../src/tensorboard/idle';
import type { IWorkbenchSettings } from '../../src/tokens';

const MINUTE = 60_000;

function stopper(minutes: number) {
  const stopped: string[] = [];
  const server = { stopTensorBoard: vi.fn((id: string) => Promise.resolve(void id)) };
  const settings = { tensorboardIdleMinutes: minutes } as {
    tensorboardIdleMinutes: number;
    changed: Signal<object, void>;
  };
  settings.changed = new Signal<object, void>(settings);
  const idle = new IdleStopper(
    server as unknown as WorkbenchServer,
    settings as unknown as IWorkbenchSettings,
    (id) => stopped.push(id),
  );
  return { idle, server, settings, stopped };
}

describe('IdleStopper', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it('stops a dashboard that stays out of sight for so long', async () => {
    const { idle, stopped } = stopper(5);
    idle.unseen('a');
    await vi.advanceTimersByTimeAsync(5 * MINUTE - 1);
    expect(stopped).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(stopped).toEqual(['a']);
  });

  it('leaves one alone that was looked at in between', async () => {
    const { idle, stopped } = stopper(5);
    idle.unseen('a');
    await vi.advanceTimersByTimeAsync(4 * MINUTE);
    idle.seen('a');
    await vi.advanceTimersByTimeAsync(60 * MINUTE);
    expect(stopped).toEqual([]);
  });

  it('does nothing when the setting is 0, and counts the time so far when it is set', async () => {
    const { idle, settings, stopped, server } = stopper(0);
    idle.unseen('a');
    await vi.advanceTimersByTimeAsync(10 * MINUTE);
    expect(server.stopTensorBoard).not.toHaveBeenCalled();
    settings.tensorboardIdleMinutes = 12;
    settings.changed.emit();
    await vi.advanceTimersByTimeAsync(2 * MINUTE);
    expect(stopped).toEqual(['a']);
  });
});
