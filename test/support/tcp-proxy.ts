/** A TCP proxy on loopback whose answers can be held back and whose connections can be cut, by hand. */
import net from "node:net";

export interface TcpProxy {
  readonly port: number;
  /** From now on nothing that the server sends reaches the client; what the client sends goes through. */
  holdAnswers(): void;
  /** Lets held answers through, and all that follow. */
  releaseAnswers(): void;
  /** Lets so many more bytes of the server's through, then cuts: in the middle of whatever is sent. */
  cutAfter(bytes: number): void;
  /** Destroys all connections; what was held is lost. New ones are taken, and pass answers again. */
  cut(): void;
  /** Refuses new connections too, until `allow`. */
  refuse(): void;
  allow(): void;
  close(): Promise<void>;
}

/** Starts a proxy in front of a port of this machine. */
export async function startTcpProxy(targetPort: number): Promise<TcpProxy> {
  const pairs = new Set<{ client: net.Socket; server: net.Socket }>();
  let holding = false;
  let refusing = false;
  /** Bytes that may still pass; undefined = any number. */
  let left: number | undefined;
  const listener = net.createServer((client) => {
    if (refusing) {
      client.destroy();
      return;
    }
    const server = net.connect({ host: "127.0.0.1", port: targetPort });
    const pair = { client, server };
    pairs.add(pair);
    const end = (): void => {
      pairs.delete(pair);
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) socket.setNoDelay(true).on("error", end).on("close", end);
    client.pipe(server);
    server.pipe(client);
    if (holding) hold(pair);
    if (left !== undefined) count(pair);
  });
  /** Takes the place of the pipe: what is beyond the last byte that may pass is lost with the connection. */
  const count = ({ client, server }: { client: net.Socket; server: net.Socket }): void => {
    server.unpipe(client);
    server.removeAllListeners("data");
    server.on("data", (data: Buffer) => {
      const part = data.subarray(0, left);
      if (left !== undefined) left -= part.length;
      client.write(part);
      if (left === 0) cut();
    });
    server.resume();
  };
  const hold = (pair: { client: net.Socket; server: net.Socket }): void => {
    pair.server.unpipe(pair.client);
    pair.server.pause();
  };
  const cut = (): void => {
    holding = false;
    left = undefined;
    for (const { client, server } of [...pairs]) {
      client.destroy();
      server.destroy();
    }
  };
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  return {
    port: (listener.address() as net.AddressInfo).port,
    holdAnswers: () => {
      holding = true;
      for (const pair of pairs) hold(pair);
    },
    releaseAnswers: () => {
      holding = false;
      for (const { client, server } of pairs) server.pipe(client);
    },
    cutAfter: (bytes) => {
      left = bytes;
      for (const pair of pairs) count(pair);
    },
    cut,
    refuse: () => {
      refusing = true;
      cut();
    },
    allow: () => (refusing = false),
    close: async () => {
      cut();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
}
