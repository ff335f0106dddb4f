/**
 * A typed gRPC client of a peer, built from its descriptor with @grpc/grpc-js: round robin over its addresses, keepalive,
 * retries of UNAVAILABLE for unary calls only, statuses turned back into TurnError.
 *
 * C1: leaving a stream's loop, returning its iterator or aborting its signal cancels the RPC at once.
 * C2: what arrived before a failure is delivered before the failure; after an abort nothing is delivered any more.
 * C3: a stream buffers what grpc-js reads ahead (16 messages) and nothing more of its own.
 */
import type { DescMethod, DescService, Message, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import type { CallOptions, ChannelOptions, ClientReadableStream, ClientDuplexStream } from "@grpc/grpc-js";
import { Metadata, connectivityState } from "@grpc/grpc-js";
import { isIPv4 } from "node:net";
import {
  Health,
  HealthCheckResponse_ServingStatus,
  HealthCheckRequestSchema,
} from "../../../gen/grpc/health/v1/health_pb.js";
import type { HealthCheckResponse } from "../../../gen/grpc/health/v1/health_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../errors.js";
import type { Logger } from "../log.js";
import { abortable } from "../signals.js";
import { GrpcLine } from "./grpc-line.js";
import { fromGrpcError } from "./grpc-status.js";

export interface GrpcClientOptions {
  /** "host:port", several separated by commas, or one "dns:///host:port" whose addresses are all used. */
  readonly addresses: string;
  /** Bearer token sent with every call. */
  readonly token?: string;
  /** Largest message taken from the peer, bytes. Default 4 MiB. */
  readonly maxReceiveBytes?: number;
  /** Probe interval of a connection with open calls, ms. Default 30,000; the answer may take 10,000. */
  readonly keepaliveMs?: number;
  /** How long a call waits for a connection before it fails UNAVAILABLE, ms. Default 5,000. */
  readonly connectWaitMs?: number;
  /** Deadline of a unary call that names none, ms. Default 30,000. */
  readonly unaryTimeoutMs?: number;
  readonly logger: Logger;
}

export interface PeerCallOptions {
  readonly signal: AbortSignal;
  /** Deadline that travels to the peer, ms. A stream without one has none. */
  readonly timeoutMs?: number;
  /** Largest sum of a stream's messages, bytes: more is SIZE_LIMIT. Default: none. */
  readonly maxStreamBytes?: number;
}

type MethodsOf<S extends DescService, Kind extends DescMethod["methodKind"]> = {
  [K in keyof S["method"]]: S["method"][K]["methodKind"] extends Kind ? K : never;
}[keyof S["method"]];
type Input<S extends DescService, K extends keyof S["method"]> = MessageInitShape<S["method"][K]["input"]>;
type Output<S extends DescService, K extends keyof S["method"]> = MessageShape<S["method"][K]["output"]>;

/** Methods are named as in the descriptor's `method` (camelCase). Every failure is a TurnError, or the signal's reason. */
export interface GrpcClient<S extends DescService> {
  unary<K extends MethodsOf<S, "unary">>(
    method: K,
    request: Input<S, K>,
    options: PeerCallOptions,
  ): Promise<Output<S, K>>;
  serverStream<K extends MethodsOf<S, "server_streaming">>(
    method: K,
    request: Input<S, K>,
    options: PeerCallOptions,
  ): AsyncIterableIterator<Output<S, K>>;
  /** Requests are pulled one at a time; their end half-closes the call. */
  bidiStream<K extends MethodsOf<S, "bidi_streaming">>(
    method: K,
    requests: AsyncIterable<Input<S, K>>,
    options: PeerCallOptions,
  ): AsyncIterableIterator<Output<S, K>>;
  /** Resolves when a peer says SERVING for this service; rejects UNAVAILABLE when it does not, or with the signal's reason. */
  ready(signal: AbortSignal): Promise<void>;
  close(): void;
}

/** Makes a client; connects with the first call. */
export function createGrpcClient<S extends DescService>(
  service: S,
  options: GrpcClientOptions,
): GrpcClient<S> {
  const channels = new Channels(service, options);
  const methods = service.method as Readonly<Record<string, DescMethod>>;
  const methodOf = (name: PropertyKey): DescMethod => methods[String(name)]!;

  return {
    async unary(name, request, callOptions) {
      const method = methodOf(name);
      const timeoutMs = callOptions.timeoutMs ?? options.unaryTimeoutMs ?? 30_000;
      return (await callUnary(channels, method, request, { ...callOptions, timeoutMs })) as never;
    },
    serverStream(name, request, callOptions) {
      const method = methodOf(name);
      const bytes = encode(method, request);
      return new StreamReader(method, callOptions, async () => {
        const line = await channels.connected(callOptions.signal);
        return line.carry(
          line.client.makeServerStreamRequest(
            pathOf(method),
            asBuffer,
            asIs,
            bytes,
            channels.metadata(),
            deadlineOf(callOptions),
          ),
        );
      }) as never;
    },
    bidiStream(name, requests, callOptions) {
      const method = methodOf(name);
      return new StreamReader(method, callOptions, async () => {
        const line = await channels.connected(callOptions.signal);
        const call = line.carry(
          line.client.makeBidiStreamRequest(
            pathOf(method),
            asBuffer,
            asIs,
            channels.metadata(),
            deadlineOf(callOptions),
          ),
        );
        void sendRequests(call, method, requests);
        return call;
      }) as never;
    },
    async ready(signal) {
      const check = Health.method.check;
      const request = create(HealthCheckRequestSchema, { service: service.typeName });
      const response = (await callUnary(channels, check, request, {
        signal,
        timeoutMs: 5_000,
      })) as HealthCheckResponse;
      if (response.status === HealthCheckResponse_ServingStatus.SERVING) return;
      throw new TurnError(ErrorCode.UNAVAILABLE, { message: `${service.typeName} is not serving yet` });
    },
    close: () => channels.close(),
  };
}

/** One line per target; several host names need several, IPv4 addresses share one with round robin. */
class Channels {
  #lines: readonly GrpcLine[];
  readonly #token: string | undefined;
  readonly #connectWaitMs: number;
  readonly #logger: Logger;
  readonly #name: string;
  #next = 0;

  constructor(service: DescService, options: GrpcClientOptions) {
    const channelOptions = channelOptionsFor(service, options);
    this.#lines = targetsOf(options.addresses).map((target) => new GrpcLine(target, channelOptions));
    this.#token = options.token;
    this.#connectWaitMs = options.connectWaitMs ?? 5_000;
    this.#logger = options.logger;
    this.#name = service.typeName;
  }

  metadata(): Metadata {
    const metadata = new Metadata();
    if (this.#token) metadata.set("authorization", `Bearer ${this.#token}`);
    return metadata;
  }

  /** A line with a connection, in turn; waits a bounded time for one. */
  async connected(signal: AbortSignal): Promise<GrpcLine> {
    signal.throwIfAborted();
    const start = this.#next++;
    const lines = (this.#lines = this.#lines.map((line) => line.renewed()));
    const inTurn = lines.map((_, index) => lines[(start + index) % lines.length]!);
    const ready = inTurn.find(
      ({ client }) => client.getChannel().getConnectivityState(true) === connectivityState.READY,
    );
    if (ready) return ready;
    try {
      return await abortable(Promise.any(inTurn.map((line) => this.#untilReady(line))), signal);
    } catch (cause) {
      if (signal.aborted) throw signal.reason;
      this.#logger.warn({ peer: this.#name }, "no connection to the peer");
      throw new TurnError(ErrorCode.UNAVAILABLE, {
        message: `${this.#name} is not reachable`,
        retryAfterMs: 1000,
        cause,
      });
    }
  }

  close(): void {
    for (const { client } of this.#lines) client.close();
  }

  #untilReady(line: GrpcLine): Promise<GrpcLine> {
    return new Promise((resolve, reject) => {
      line.client.waitForReady(Date.now() + this.#connectWaitMs, (error) =>
        error ? reject(error) : resolve(line),
      );
    });
  }
}

function channelOptionsFor(service: DescService, options: GrpcClientOptions): ChannelOptions {
  const unaryNames = service.methods
    .filter((method) => method.methodKind === "unary")
    .map((method) => ({ service: service.typeName, method: method.name }));
  const retryPolicy = {
    maxAttempts: 3,
    initialBackoff: "0.1s",
    maxBackoff: "1s",
    backoffMultiplier: 2,
    retryableStatusCodes: ["UNAVAILABLE"],
  };
  return {
    "grpc.service_config": JSON.stringify({
      loadBalancingConfig: [{ round_robin: {} }],
      ...(unaryNames.length > 0 ? { methodConfig: [{ name: unaryNames, retryPolicy }] } : {}),
    }),
    "grpc.service_config_disable_resolution": 1,
    "grpc.max_receive_message_length": options.maxReceiveBytes ?? 4 * 1024 * 1024,
    "grpc.max_send_message_length": -1,
    "grpc.keepalive_time_ms": options.keepaliveMs ?? 30_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.keepalive_permit_without_calls": 0,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 2_000,
    "grpc.enable_http_proxy": 0,
    "grpc.enable_channelz": 0,
    "grpc.use_local_subchannel_pool": 1,
  };
}

/** "a:1,b:2" -> grpc-js targets. Exported for its test. */
export function targetsOf(addresses: string): string[] {
  const list = addresses
    .split(",")
    .map((address) => address.trim())
    .filter((address) => address !== "");
  if (list.length === 0) throw new Error("no peer address given");
  const plain = list.filter((address) => !/^[a-z0-9]+:\/\//i.test(address));
  const schemes = list.filter((address) => !plain.includes(address));
  const ipv4 = plain.filter((address) => isIPv4(address.slice(0, address.lastIndexOf(":"))));
  const named = plain.filter((address) => !ipv4.includes(address));
  return [
    ...(ipv4.length > 0 ? [`ipv4:${ipv4.join(",")}`] : []),
    ...named.map((address) => `dns:///${address}`),
    ...schemes,
  ];
}

async function callUnary(
  channels: Channels,
  method: DescMethod,
  request: MessageInitShape<DescMethod["input"]>,
  options: PeerCallOptions,
): Promise<Message> {
  const bytes = encode(method, request);
  const line = await channels.connected(options.signal);
  return new Promise((resolve, reject) => {
    const settle = (error: unknown, response?: Buffer): void => {
      options.signal.removeEventListener("abort", onAbort);
      if (error || !response) reject(error ?? new TurnError(ErrorCode.INTERNAL));
      else resolveDecoded(method, response, resolve, reject);
    };
    const call = line.carry(
      line.client.makeUnaryRequest(
        pathOf(method),
        asBuffer,
        asIs,
        bytes,
        channels.metadata(),
        deadlineOf(options),
        (error, response) => settle(error && fromGrpcError(error), response),
      ),
    );
    const onAbort = (): void => {
      settle(options.signal.reason);
      call.cancel();
    };
    options.signal.addEventListener("abort", onAbort, { once: true });
  });
}

function resolveDecoded(
  method: DescMethod,
  bytes: Buffer,
  resolve: (message: Message) => void,
  reject: (error: unknown) => void,
): void {
  try {
    resolve(decode(method, bytes));
  } catch (error) {
    reject(error);
  }
}

async function sendRequests(
  call: ClientDuplexStream<Buffer, Buffer>,
  method: DescMethod,
  requests: AsyncIterable<MessageInitShape<DescMethod["input"]>>,
): Promise<void> {
  const ended = new Promise<void>((resolve) => {
    const over = (): void => resolve(); // with nothing: an error would look like a request
    call.once("close", over).once("error", over).once("end", over);
  });
  const iterator = requests[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await Promise.race([iterator.next(), ended]);
      if (!next) return; // the call is over: nobody wants the rest
      if (next.done) break;
      if (!call.write(encode(method, next.value))) {
        await Promise.race([new Promise<void>((resolve) => call.once("drain", resolve)), ended]);
      }
    }
    call.end();
  } catch {
    call.cancel(); // the requests' own failure ends the call; whoever made them knows why
  } finally {
    void Promise.resolve(iterator.return?.()).catch(() => undefined);
  }
}

/** What each message costs beside its own bytes: empty ones are not free. */
const FRAME_HEAD_BYTES = 5;

/** The messages of a call, pulled from grpc-js's readable (C1-C3). The call is opened by the first `next`. */
class StreamReader implements AsyncIterableIterator<Message> {
  readonly #method: DescMethod;
  readonly #signal: AbortSignal;
  readonly #open: () => Promise<ClientReadableStream<Buffer>>;
  #bytesLeft: number;
  #call: ClientReadableStream<Buffer> | undefined;
  #state: { readonly kind: "idle" | "open" } | { readonly kind: "over"; readonly error?: unknown } = {
    kind: "idle",
  };
  #ended = false;
  #failure: { readonly error: TurnError } | undefined;
  #wake: (() => void) | undefined;
  #tail: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  constructor(
    method: DescMethod,
    { signal, maxStreamBytes = Infinity }: PeerCallOptions,
    open: () => Promise<ClientReadableStream<Buffer>>,
  ) {
    this.#method = method;
    this.#signal = signal;
    this.#open = open;
    this.#bytesLeft = maxStreamBytes;
    signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<Message>> {
    // what grpc-js holds already needs no waiting: most messages of a fast stream
    const bytes =
      this.#waiting === 0 && this.#state.kind === "open" ? (this.#call?.read() as Buffer | null) : null;
    if (bytes) return this.#delivered(bytes);
    this.#waiting++;
    const turn = this.#tail.then(() => this.#take()).finally(() => this.#waiting--);
    this.#tail = turn.catch(() => undefined);
    return turn;
  }

  /** Cancels the RPC now, even while a `next` is pending; that one then says done. */
  return(): Promise<IteratorResult<Message>> {
    this.#finish({ kind: "over" });
    return Promise.resolve({ done: true, value: undefined });
  }

  throw(error: unknown): Promise<IteratorResult<Message>> {
    this.#finish({ kind: "over" });
    return Promise.reject(error);
  }

  async #take(): Promise<IteratorResult<Message>> {
    if (this.#signal.aborted) this.#onAbort();
    if (this.#state.kind === "idle") await this.#start();
    for (;;) {
      if (this.#state.kind === "over") return this.#leave(this.#state);
      const bytes = this.#call!.read() as Buffer | null;
      if (bytes) return { done: false, value: this.#decoded(bytes) };
      if (this.#failure) this.#finish({ kind: "over", error: this.#failure.error });
      else if (this.#ended) this.#finish({ kind: "over" });
      else await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  async #start(): Promise<void> {
    this.#state = { kind: "open" };
    try {
      const call = await this.#open();
      this.#call = call;
      if (this.#isOver()) {
        call.on("error", () => undefined);
        call.cancel();
        return;
      }
      const wake = (): void => this.#wake?.();
      call.on("readable", wake);
      call.on("end", () => {
        this.#ended = true;
        wake();
      });
      call.on("error", (error) => {
        this.#failure = { error: fromGrpcError(error) };
        wake();
      });
    } catch (error) {
      this.#finish({ kind: "over", error });
    }
  }

  #delivered(bytes: Buffer): Promise<IteratorResult<Message>> {
    try {
      return Promise.resolve({ done: false, value: this.#decoded(bytes) });
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #decoded(bytes: Buffer): Message {
    try {
      this.#bytesLeft -= FRAME_HEAD_BYTES + bytes.length;
      if (this.#bytesLeft < 0)
        throw new TurnError(ErrorCode.SIZE_LIMIT, { message: "the peer sent more than it may" });
      return decode(this.#method, bytes);
    } catch (error) {
      this.#finish({ kind: "over" });
      throw error;
    }
  }

  // An error is said once; afterwards the iterator is simply done.
  #leave(state: { readonly error?: unknown }): IteratorResult<Message> {
    if (!("error" in state)) return { done: true, value: undefined };
    this.#state = { kind: "over" };
    throw state.error;
  }

  #isOver(): boolean {
    return this.#state.kind === "over";
  }

  #finish(state: { readonly kind: "over"; readonly error?: unknown }): void {
    if (this.#state.kind === "over") return;
    this.#state = state;
    this.#signal.removeEventListener("abort", this.#onAbort);
    this.#call?.cancel();
    this.#wake?.();
  }

  readonly #onAbort = (): void => this.#finish({ kind: "over", error: this.#signal.reason });
}

function deadlineOf(options: PeerCallOptions): CallOptions {
  return options.timeoutMs === undefined ? {} : { deadline: Date.now() + options.timeoutMs };
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function encode(method: DescMethod, request: MessageInitShape<DescMethod["input"]>): Buffer {
  return asBuffer(toBinary(method.input, create(method.input, request)));
}

function decode(method: DescMethod, bytes: Uint8Array): Message {
  try {
    return fromBinary(method.output, bytes);
  } catch (cause) {
    throw new TurnError(ErrorCode.INTERNAL, {
      message: `the peer sent an unreadable ${method.output.typeName}`,
      cause,
    });
  }
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function asIs(bytes: Buffer): Buffer {
  return bytes;
}
