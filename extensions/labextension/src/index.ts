import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { captures } from './plugins/captures';
import { commands } from './plugins/commands';
import { connection } from './plugins/connection';
import { documents } from './plugins/documents';
import { files } from './plugins/files';
import { keys } from './plugins/keys';
import { launcher } from './plugins/launcher';
import { memoryDiff } from './plugins/memory-diff';
import { open } from './plugins/open';
import { output } from './plugins/output';
import { save } from './plugins/save';
import { settings } from './plugins/settings';
import { sidebar } from './plugins/sidebar';
import { statusbar } from './plugins/statusbar';
import { tensorboard } from './plugins/tensorboard';

export * from './tokens';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  settings,
  keys,
  connection,
  sidebar,
  documents,
  captures,
  files,
  memoryDiff,
  save,
  tensorboard,
  open,
  output,
  commands,
  launcher,
  statusbar,
];

export default plugins;
