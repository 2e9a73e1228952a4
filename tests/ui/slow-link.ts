import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

/** Each way; so a question and its answer take 400 ms. */
const DELAY_MS = 200;
/** Of a line of 1 Mbit/s, for all connections together, each way. */
const BYTES_PER_MS = 125;

/**
 * A line to a server that is as fast as it can be until it is made slow. Chromium's own
 * network conditions leave WebSockets as they are, and those are what a kernel speaks through.
 */
export class Link {
  /** Whether 400 ms and 1 Mbit/s lie between the page and its server. */
  isSlow = false;

  /** Opens a line to a server of this machine. */
  static async to(port: number): Promise<Link> {
    const link = new Link(port);
    await new Promise<void>((done) => link.server.listen(0, '127.0.0.1', done));
    return link;
  }

  /** Where the page finds the server through this line. */
  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.server.close();
    this.sockets.forEach((socket) => socket.destroy());
  }

  private constructor(port: number) {
    this.server = createServer((page) => {
      const server = connect(port, '127.0.0.1');
      this.pass(page, server, 'up');
      this.pass(server, page, 'down');
    });
  }

  private pass(from: Socket, to: Socket, way: 'up' | 'down'): void {
    this.sockets.add(from);
    // Timers of one moment may fire in any order; bytes may not.
    const waiting: (() => void)[] = [];
    let last = 0;
    const later = (bytes: number, then: () => void): void => {
      const now = performance.now();
      const sent = Math.max(now, this.free[way]) + (this.isSlow ? bytes / BYTES_PER_MS : 0);
      this.free[way] = sent;
      // What was sent before the line became slow, or fast again, still comes first.
      last = Math.max(last, sent + (this.isSlow ? DELAY_MS : 0));
      waiting.push(then);
      setTimeout(() => waiting.shift()?.(), last - now);
    };
    from.on('data', (chunk) => later(chunk.length, () => to.write(chunk)));
    from.on('end', () => later(0, () => to.end()));
    from.on('error', () => to.destroy());
    from.on('close', () => this.sockets.delete(from));
  }

  private readonly server;
  private readonly sockets = new Set<Socket>();
  private readonly free = { up: 0, down: 0 };
}
