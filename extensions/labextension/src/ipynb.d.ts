declare module '*.ipynb' {
  import type { INotebookContent } from '@jupyterlab/nbformat';
  const content: INotebookContent;
  export default content;
}
