import type { IWorkbenchSettings } from '../tokens';
import type { WorkbenchServer } from '../server';

/** Stops dashboards that have been out of sight for as long as the setting says. */
export class IdleStopper {
  constructor(
    private readonly server: WorkbenchServer,
    private readonly settings: IWorkbenchSettings,
    private readonly onStopped: (id: string) => void,
  ) {
    settings.changed.connect(() => this.restart());
  }

  /** A tab shows this dashboard. */
  seen(id: string): void {
    this.hiddenSince.delete(id);
    this.clear(id);
  }

  /** No tab shows this dashboard any more. */
  unseen(id: string): void {
    if (!this.hiddenSince.has(id)) {
      this.hiddenSince.set(id, Date.now());
      this.startTimer(id);
    }
  }

  /** This dashboard does not run any more. */
  forget(id: string): void {
    this.seen(id);
  }

  private restart(): void {
    for (const id of this.hiddenSince.keys()) {
      this.clear(id);
      this.startTimer(id);
    }
  }

  private startTimer(id: string): void {
    const minutes = this.settings.tensorboardIdleMinutes;
    const since = this.hiddenSince.get(id);
    if (minutes > 0 && since !== undefined) {
      const left = since + minutes * 60_000 - Date.now();
      this.timers.set(
        id,
        window.setTimeout(() => void this.stop(id), Math.max(0, left)),
      );
    }
  }

  private async stop(id: string): Promise<void> {
    this.forget(id);
    try {
      await this.server.stopTensorBoard(id);
      this.onStopped(id);
    } catch {
      // Gone already, or the server is: there is nothing left to stop.
    }
  }

  private clear(id: string): void {
    window.clearTimeout(this.timers.get(id));
    this.timers.delete(id);
  }

  private readonly hiddenSince = new Map<string, number>();
  private readonly timers = new Map<string, number>();
}
