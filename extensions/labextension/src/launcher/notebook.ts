import { PathExt } from '@jupyterlab/coreutils';
import type { INotebookContent } from '@jupyterlab/nbformat';
import type { Contents, KernelSpec, ServiceManager } from '@jupyterlab/services';
import template from '../../../../workbench/templates/classifier.ipynb';

/** Writes the classifier's notebook into a folder, under a name that is free, and returns its path. */
export async function createClassifier(
  services: ServiceManager.IManager,
  folder: string,
): Promise<string> {
  await services.kernelspecs.ready;
  const content = withKernel(template, pythonSpec(services.kernelspecs.specs));
  const path = await freePath(services.contents, folder, 'classifier', '.ipynb');
  const model = await services.contents.save(path, { type: 'notebook', format: 'json', content });
  return model.path;
}

/** A notebook opens without requesting a kernel when it names one that this server has. */
function withKernel(
  notebook: INotebookContent,
  spec: KernelSpec.ISpecModel | null,
): INotebookContent {
  if (spec === null) {
    return notebook;
  }
  const kernelspec = { name: spec.name, display_name: spec.display_name, language: spec.language };
  return { ...notebook, metadata: { ...notebook.metadata, kernelspec } };
}

/** The server's default kernel when it speaks Python, else the first that does. */
function pythonSpec(specs: KernelSpec.ISpecModels | null): KernelSpec.ISpecModel | null {
  if (specs === null) {
    return null;
  }
  const all = [specs.kernelspecs[specs.default], ...Object.values(specs.kernelspecs)];
  return all.find((spec) => spec?.language.toLowerCase() === 'python') ?? null;
}

async function freePath(
  contents: Contents.IManager,
  folder: string,
  stem: string,
  extension: string,
): Promise<string> {
  const listing = await contents.get(folder, { content: true });
  const taken = new Set((listing.content as Contents.IModel[]).map((one) => one.name));
  let name = stem + extension;
  for (let count = 2; taken.has(name); count += 1) {
    name = `${stem}-${count}${extension}`;
  }
  return PathExt.join(folder, name);
}
