/**
 * The two comms of one browser view, as one thing (`docs/architecture.md`, "The live channels").
 * Only the code that opens a channel differs between hosts.
 */
export interface Channel {
  /** Towards the kernel: the control comm. */
  send(data: ChannelData): void;
  /** From the kernel: the metrics comm. Buffers are the message's binary parts, in order. */
  onMessage(callback: (data: ChannelData, buffers: readonly Buffer[]) => void): void;
  /**
   * The kernel's side went away; `reason` is one sentence a person can act on. `final`: do not try
   * again by yourself (the kernel was restarted and knows nothing of this view).
   */
  onClose(callback: (reason: string, final?: boolean) => void): void;
  close(): void;
}

/** A JSON object. */
export type ChannelData = Record<string, unknown>;

/** One binary part of a message: hosts hand over either. */
export type Buffer = ArrayBuffer | ArrayBufferView;

/** Opens a channel that announces itself as `client`; rejects with one sentence when it cannot. */
export type Connect = (client: string) => Promise<Channel>;

/** Thrown by a `Connect` that must not be tried again: only a person can go on. */
export class FinalError extends Error {}

/** A new `client`. Works in plain-http pages too, where `crypto.randomUUID` does not exist. */
export function clientId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
