import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { connection } from './plugins/connection';
import { launcher } from './plugins/launcher';
import { settings } from './plugins/settings';
import { tensorboard } from './plugins/tensorboard';

export * from './tokens';

const plugins: JupyterFrontEndPlugin<unknown>[] = [settings, connection, launcher, tensorboard];

export default plugins;
