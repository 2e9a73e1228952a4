/** Commands that wait for the kernel's reply, each with its own time limit. */
export class PendingReplies {
  private readonly waiting = new Map<string, Waiting>();

  /** A promise for the reply to `id`; rejects after `limitMs` with a sentence naming `what`. */
  wait(id: string, what: string, limitMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiting.delete(id);
        const seconds = Math.round(limitMs / 1000);
        reject(
          new Error(`${what}: the kernel has not answered for ${seconds} s; it may still do so`),
        );
      }, limitMs);
      this.waiting.set(id, { resolve, reject, timer });
    });
  }

  /** Settles the reply to `id`; false when no caller waits for it (any more). */
  settle(id: string, ok: boolean, error: string): boolean {
    const entry = this.take(id);
    if (!entry) return false;
    if (ok) entry.resolve();
    else entry.reject(new Error(error || 'the kernel refused, without saying why'));
    return true;
  }

  /** Rejects everything that waits: the channel is gone. */
  rejectAll(reason: string): void {
    for (const id of [...this.waiting.keys()]) this.take(id)?.reject(new Error(reason));
  }

  private take(id: string): Waiting | undefined {
    const entry = this.waiting.get(id);
    if (entry) clearTimeout(entry.timer);
    this.waiting.delete(id);
    return entry;
  }
}

interface Waiting {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
  readonly timer: ReturnType<typeof setTimeout>;
}
