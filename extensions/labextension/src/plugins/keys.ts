import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { keepKeys } from '../keys';

export const keys: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:keys',
  description: 'Keeps keys pressed in a view from the shortcuts of the notebook around it.',
  autoStart: true,
  activate: () => void keepKeys(window),
};
