import { Widget } from '@lumino/widgets';

/** The one thing to do next. */
export interface INoticeAction {
  label: string;
  run: () => void;
}

/** One sentence in place of content that is not there, with at most one button. */
export class Notice extends Widget {
  constructor() {
    super();
    this.addClass('jp-Workbench-notice');
    this.sentence = document.createElement('p');
    this.progress = document.createElement('div');
    this.progress.className = 'jp-Workbench-progress';
    this.button = document.createElement('button');
    this.button.type = 'button';
    this.button.className = 'jp-Workbench-button';
    this.button.addEventListener('click', () => this.run?.());
    this.node.append(this.sentence, this.progress, this.button);
  }

  /** Shows `sentence`; an error is announced at once, the rest when the reader has time. */
  showMessage(kind: 'busy' | 'status' | 'error', sentence: string, action?: INoticeAction): void {
    this.node.setAttribute('role', kind === 'error' ? 'alert' : 'status');
    this.node.dataset.kind = kind;
    this.progress.hidden = kind !== 'busy';
    this.sentence.textContent = sentence;
    this.button.textContent = action?.label ?? '';
    this.button.hidden = action === undefined;
    this.run = action?.run;
  }

  private readonly sentence: HTMLParagraphElement;
  private readonly progress: HTMLElement;
  private readonly button: HTMLButtonElement;
  private run: (() => void) | undefined;
}
