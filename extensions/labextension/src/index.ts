import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { commands } from './plugins/commands';
import { connection } from './plugins/connection';
import { launcher } from './plugins/launcher';
import { open } from './plugins/open';
import { settings } from './plugins/settings';
import { statusbar } from './plugins/statusbar';
import { tensorboard } from './plugins/tensorboard';

export * from './tokens';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  settings,
  connection,
  tensorboard,
  open,
  commands,
  launcher,
  statusbar,
];

export default plugins;
