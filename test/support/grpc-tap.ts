/**
 * A TCP proxy in front of a gRPC port (HTTP/2, cleartext) that also reads what the server answers: every message of every
 * call, as the client gets it. For tests with clients that say little about what they received.
 */
import net from "node:net";

export interface TappedCall {
  /** The response messages, in order. */
  readonly messages: readonly Uint8Array[];
  /** True once the server closed its half: trailers, or a reset. */
  readonly ended: boolean;
}

export interface GrpcTap {
  readonly port: number;
  /** Calls that answered at least one message. */
  calls(): TappedCall[];
  close(): Promise<void>;
}

/** Starts the proxy on a free port. */
export async function startGrpcTap(targetPort: number): Promise<GrpcTap> {
  const readers: ResponseReader[] = [];
  const sockets = new Set<net.Socket>();
  const listener = net.createServer((client) => {
    const server = net.connect({ host: "127.0.0.1", port: targetPort });
    const reader = new ResponseReader();
    readers.push(reader);
    server.on("data", (chunk: Buffer) => reader.push(chunk));
    for (const socket of [client, server]) {
      sockets.add(socket);
      const end = (): void => {
        client.destroy();
        server.destroy();
        sockets.delete(socket);
      };
      socket.setNoDelay(true).on("error", end).on("close", end);
    }
    client.pipe(server);
    server.pipe(client);
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  return {
    port: (listener.address() as net.AddressInfo).port,
    calls: () => readers.flatMap((reader) => reader.calls()),
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
}

interface Call {
  body: Buffer[];
  ended: boolean;
}

const FRAME_HEADER_BYTES = 9;
const DATA = 0;
const RST_STREAM = 3;
const END_STREAM = 0x1;
const PADDED = 0x8;

/** Reads the frames of one connection's server side. */
class ResponseReader {
  readonly #streams = new Map<number, Call>();
  #rest = Buffer.alloc(0);

  push(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    while (this.#rest.length >= FRAME_HEADER_BYTES) {
      const length = this.#rest.readUIntBE(0, 3);
      if (this.#rest.length < FRAME_HEADER_BYTES + length) return;
      const [type, flags] = [this.#rest[3]!, this.#rest[4]!];
      const stream = this.#rest.readUInt32BE(5) & 0x7fff_ffff;
      this.#frame(type, flags, stream, this.#rest.subarray(FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + length));
      this.#rest = this.#rest.subarray(FRAME_HEADER_BYTES + length);
    }
  }

  calls(): TappedCall[] {
    return [...this.#streams.values()]
      .filter(({ body }) => body.length > 0)
      .map(({ body, ended }) => ({ messages: grpcMessages(Buffer.concat(body)), ended }));
  }

  #frame(type: number, flags: number, stream: number, payload: Buffer): void {
    if (stream === 0) return;
    const call = this.#streams.get(stream) ?? { body: [], ended: false };
    this.#streams.set(stream, call);
    if (type === DATA) {
      const padding = flags & PADDED ? payload[0]! + 1 : 0;
      const start = flags & PADDED ? 1 : 0;
      call.body.push(Buffer.from(payload.subarray(start, payload.length - padding + start)));
    }
    // HEADERS and DATA share the flag's bit; other frames of a stream do not use it.
    if (type === RST_STREAM || ((type === DATA || type === 1) && flags & END_STREAM)) call.ended = true;
  }
}

function grpcMessages(body: Buffer): Uint8Array[] {
  const messages: Uint8Array[] = [];
  for (let at = 0; at < body.length;) {
    const length = body.readUInt32BE(at + 1);
    if (body[at] !== 0) throw new Error("the tap reads uncompressed messages only");
    messages.push(body.subarray(at + 5, at + 5 + length));
    at += 5 + length;
  }
  return messages;
}
