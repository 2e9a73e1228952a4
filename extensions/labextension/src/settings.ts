import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Signal } from '@lumino/signaling';
import type { IWorkbenchSettings } from './tokens';

/** The settings with their defaults, filled in when JupyterLab has loaded them. */
export class WorkbenchSettings implements IWorkbenchSettings {
  readonly changed: Signal<IWorkbenchSettings, void> = new Signal(this);

  /** Follows a loaded settings object from now on. */
  connect(settings: ISettingRegistry.ISettings): void {
    this.settings = settings;
    settings.changed.connect(() => this.changed.emit());
    this.changed.emit();
  }

  get refreshInterval(): number {
    return this.value('refreshInterval', 100);
  }

  get maxPoints(): number {
    return this.value('maxPoints', 5000);
  }

  get tensorboardIdleMinutes(): number {
    return this.value('tensorboardIdleMinutes', 0);
  }

  get openSidePanel(): boolean {
    return this.value('openSidePanel', false);
  }

  get showStatus(): boolean {
    return this.value('showStatus', true);
  }

  private value<T>(name: string, fallback: T): T {
    return (this.settings?.get(name).composite as T | undefined) ?? fallback;
  }

  private settings: ISettingRegistry.ISettings | null = null;
}
