import { type Kernel, KernelMessage } from '@jupyterlab/services';
import { type JSONObject, UUID } from '@lumino/coreutils';

/** What a channel uses of a comm; JupyterLab's own have more. */
export type Comm = Pick<
  Kernel.IComm,
  'isDisposed' | 'onMsg' | 'onClose' | 'open' | 'send' | 'close' | 'dispose'
>;

/**
 * A comm over a connection that JupyterLab lets have none.
 *
 * Of several connections to one kernel (two notebooks, a notebook and a console) JupyterLab has the
 * first handle comms, because each one that does closes every comm of a target that it does not
 * know. The messages themselves reach and leave all of them: this is one comm that is opened from
 * here, by the documented messages, and its id is used by no other comm.
 */
export class PlainComm implements Comm {
  onMsg: Comm['onMsg'] = () => undefined;
  onClose: Comm['onClose'] = () => undefined;

  /** `subshell` is the shell of the kernel that answers; null is the one that runs cells. */
  constructor(
    private readonly kernel: Kernel.IKernelConnection,
    private readonly target: string,
    private readonly subshell: string | null,
  ) {
    kernel.iopubMessage.connect(this.receive, this);
    kernel.disposed.connect(this.dispose, this);
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  open(data: JSONObject): Kernel.IShellFuture {
    return this.post('comm_open', { target_name: this.target, data });
  }

  send(data: JSONObject): Kernel.IShellFuture {
    return this.post('comm_msg', { data });
  }

  close(): Kernel.IShellFuture {
    const said = this.post('comm_close', { data: {} });
    this.dispose();
    return said;
  }

  dispose(): void {
    this._isDisposed = true;
    this.kernel.iopubMessage.disconnect(this.receive, this);
    this.kernel.disposed.disconnect(this.dispose, this);
  }

  private receive(_: unknown, message: KernelMessage.IIOPubMessage): void {
    if (KernelMessage.isCommMsgMsg(message) && message.content.comm_id === this.id) {
      void this.onMsg(message);
    } else if (KernelMessage.isCommCloseMsg(message) && message.content.comm_id === this.id) {
      void this.onClose(message);
      this.dispose();
    }
  }

  private post(
    msgType: 'comm_open' | 'comm_msg' | 'comm_close',
    content: JSONObject,
  ): Kernel.IShellFuture {
    if (this._isDisposed) {
      throw new Error('The connection to the kernel was closed.');
    }
    const { username, clientId: session } = this.kernel;
    const message = KernelMessage.createMessage<KernelMessage.ICommOpenMsg<'shell'>>({
      // the three differ in their contents alone
      msgType: msgType as 'comm_open',
      channel: 'shell',
      username,
      session,
      subshellId: this.subshell,
      content: { comm_id: this.id, ...content } as KernelMessage.ICommOpenMsg<'shell'>['content'],
    });
    return this.kernel.sendShellMessage(message, false, true);
  }

  private readonly id = UUID.uuid4();
  private _isDisposed = false;
}
