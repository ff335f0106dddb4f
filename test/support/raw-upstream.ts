/**
 * An HTTP server for tests that may break every rule: it reads a request, then a script does with the socket what it likes.
 * Owns its sockets. The first segment of the path says which script.
 */
import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";

/** Answers one request; the socket is closed by the script, or by the client. */
export type RawScript = (socket: Socket) => void | Promise<void>;

export interface RawUpstream {
  readonly port: number;
  /** Base URL whose requests this script answers. */
  serve(name: string, script: RawScript): string;
  close(): Promise<void>;
}

export async function startRawUpstream(): Promise<RawUpstream> {
  const scripts = new Map<string, RawScript>();
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    socket.on("error", () => undefined); // clients leave as they like
    let request = Buffer.alloc(0);
    socket.on("data", (bytes) => {
      request = Buffer.concat([request, bytes]);
      const name = nameOfWhole(request);
      if (name === undefined) return;
      request = Buffer.alloc(0);
      void scripts.get(name)?.(socket);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    port,
    serve(name, script) {
      scripts.set(name, script);
      return `http://127.0.0.1:${port}/${name}`;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

/** The first segment of the path, once the request is whole. */
function nameOfWhole(request: Buffer): string | undefined {
  const head = request.indexOf("\r\n\r\n");
  if (head === -1) return undefined;
  const text = request.subarray(0, head).toString("latin1");
  const length = Number(/^content-length: *(\d+)/im.exec(text)?.[1] ?? 0);
  if (request.length < head + 4 + length) return undefined;
  return /^\w+ \/([^/ ]+)/.exec(text)?.[1];
}

/** Status line and headers; the body goes on until the connection ends. */
export function head(status: string, headers: Readonly<Record<string, string>> = {}): string {
  const lines = Object.entries({ connection: "close", ...headers }).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  return `HTTP/1.1 ${status}\r\n${lines.join("")}\r\n`;
}

/** One chunk of a chunked body. */
export function chunkOf(bytes: Buffer | string): Buffer {
  const body = Buffer.from(bytes);
  return Buffer.concat([Buffer.from(`${body.length.toString(16)}\r\n`), body, Buffer.from("\r\n")]);
}

/** Ends a chunked body properly. */
export const LAST_CHUNK = "0\r\n\r\n";

/** Writes these bytes for ever, as fast as they are taken. */
export async function pour(socket: Socket, bytes: Buffer): Promise<void> {
  while (!socket.destroyed) {
    if (!socket.write(bytes))
      await Promise.race([once(socket, "drain"), once(socket, "close")]).catch(() => undefined);
    else await new Promise(setImmediate);
  }
}
