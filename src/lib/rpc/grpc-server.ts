/**
 * Serves bound services over native gRPC (HTTP/2) with @grpc/grpc-js, built from the descriptors alone.
 * Owns: the listening socket, the open calls and their scopes.
 *
 * G1: bytes frames go out as they came in; nothing on the live path is decoded or encoded.
 * G2: requests are decoded and validated before an implementation sees them; what cannot be decoded is INVALID_ARGUMENT.
 * G3: every call ends: client gone, deadline, stalled reader and shutdown abort its signal, its status leaves at once or
 *     the stream is reset, also when the implementation ignores the signal or the reader takes nothing.
 * G4: a status is made by status.ts only.
 */
import type { DescMethod, Message } from "@bufbuild/protobuf";
import { toBinary } from "@bufbuild/protobuf";
import type {
  MethodDefinition,
  ServerDuplexStream,
  ServerUnaryCall,
  ServerWritableStream,
  UntypedServiceImplementation,
  sendUnaryData,
} from "@grpc/grpc-js";
import { Server, ServerCredentials, logVerbosity, setLogVerbosity } from "@grpc/grpc-js";
import type { EventEmitter } from "node:events";
import type { ServerHttp2Stream } from "node:http2";
import { constants } from "node:http2";
import type { Readable } from "node:stream";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../errors.js";
import type { Logger } from "../log.js";
import { abortable } from "../signals.js";
import { Admission } from "./admission.js";
import { CallScope, shuttingDown } from "./call-scope.js";
import { FrameWriter } from "./frame-writer.js";
import { toGrpcStatus } from "./grpc-status.js";
import type { HealthState } from "./health.js";
import { healthService } from "./health.js";
import type { ServerLimits } from "./limits.js";
import { DEFAULT_LIMITS } from "./limits.js";
import { reflectionServices } from "./reflection.js";
import type {
  Authenticate,
  BidiImpl,
  CallContext,
  Principal,
  ServerStreamImpl,
  ServiceBinding,
  StreamFrame,
  UnaryImpl,
} from "./service-binding.js";
import { visitUntilAborted } from "./until-aborted.js";
import { compileRules, decodeRequest, validateRequest } from "./validation.js";

export interface ServeGrpcOptions {
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  /** What is served, beside health and reflection. */
  readonly services: readonly ServiceBinding[];
  /** Says who calls; throws UNAUTHENTICATED. Not asked for health checks. */
  readonly authenticate: Authenticate;
  readonly health: HealthState;
  readonly logger: Logger;
  /** Shorthand for limits.maxReceiveBytes: 4 MiB by default; 32 MiB for the llm peer. */
  readonly maxReceiveBytes?: number;
  readonly limits?: Partial<ServerLimits>;
  /** PEM; without it the port is cleartext HTTP/2. */
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer };
}

export interface GrpcServer {
  readonly port: number;
  /** Open calls, health and reflection left out. */
  readonly openCalls: number;
  /** Says NOT_SERVING, takes no more calls, lets open ones finish for graceMs, then ends them UNAVAILABLE, then by force. */
  close(graceMs: number): Promise<void>;
}

/** Starts a gRPC server. Rejects with UNAVAILABLE when the port is taken. */
export async function serveGrpc(options: ServeGrpcOptions): Promise<GrpcServer> {
  const limits: ServerLimits = { ...DEFAULT_LIMITS, ...options.limits };
  const maxReceiveBytes = options.maxReceiveBytes ?? limits.maxReceiveBytes;
  setLogVerbosity(logVerbosity.NONE); // it writes to the console; what matters reaches us as errors
  const server = new Server({
    "grpc.max_receive_message_length": maxReceiveBytes,
    "grpc.max_send_message_length": -1,
    "grpc.max_concurrent_streams": limits.maxConcurrentStreams,
    "grpc.keepalive_time_ms": limits.keepaliveMs,
    "grpc.keepalive_timeout_ms": limits.keepaliveTimeoutMs,
    "grpc-node.max_session_memory": 64,
    "grpc.enable_channelz": 0,
  });
  const calls = new CallTable({ ...limits, maxReceiveBytes }, options);
  const descs = options.services.map((binding) => binding.service);
  compileRules(descs);
  for (const binding of options.services)
    addBinding(server, binding, calls, { authenticate: options.authenticate, infrastructure: false });
  for (const binding of reflectionServices(descs)) {
    addBinding(server, binding, calls, { authenticate: options.authenticate, infrastructure: true });
  }
  const health = healthService(
    options.health,
    descs.map((desc) => desc.typeName),
  );
  addBinding(server, health, calls, { authenticate: () => ANYONE, infrastructure: true });

  const port = await bind(server, options);
  return {
    port,
    get openCalls() {
      return calls.admission.open;
    },
    close: (graceMs) => closeServer(server, calls, options.health, graceMs, limits.cutGraceMs),
  };
}

const ANYONE: Principal = { tenantId: "", userId: "", admin: false };

async function bind(server: Server, options: ServeGrpcOptions): Promise<number> {
  const { host, port, tls } = options;
  const credentials = tls
    ? ServerCredentials.createSsl(null, [{ cert_chain: tls.cert, private_key: tls.key }])
    : ServerCredentials.createInsecure();
  const address = `${host.includes(":") && !host.startsWith("[") ? `[${host}]` : host}:${port}`;
  return new Promise((resolve, reject) => {
    server.bindAsync(address, credentials, (error, bound) => {
      if (!error) resolve(bound);
      else
        reject(
          new TurnError(ErrorCode.UNAVAILABLE, {
            message: `cannot listen on ${address}: is the port taken?`,
            cause: error,
          }),
        );
    });
  });
}

async function closeServer(
  server: Server,
  calls: CallTable,
  health: HealthState,
  graceMs: number,
  forceAfterMs: number,
): Promise<void> {
  health.set(false);
  calls.endInfrastructure();
  const closed = new Promise<void>((resolve) => server.tryShutdown(() => resolve()));
  const grace = setTimeout(() => calls.endAll(shuttingDown()), graceMs);
  const force = setTimeout(() => server.forceShutdown(), graceMs + forceAfterMs);
  await closed;
  clearTimeout(grace);
  clearTimeout(force);
}

interface BindingRules {
  readonly authenticate: Authenticate;
  /** Health and reflection: not counted, and ended at once on shutdown. */
  readonly infrastructure: boolean;
}

/** What all calls share, and the set of the open ones. */
class CallTable {
  readonly limits: ServerLimits;
  readonly logger: Logger;
  readonly admission: Admission;
  readonly #open = new Map<CallScope, BindingRules>();
  #closing = false;

  constructor(limits: ServerLimits, options: Pick<ServeGrpcOptions, "logger">) {
    this.limits = limits;
    this.logger = options.logger;
    this.admission = new Admission(limits);
  }

  add(scope: CallScope, rules: BindingRules): void {
    this.#open.set(scope, rules);
    if (this.#closing && rules.infrastructure) scope.abort(shuttingDown());
  }

  remove(scope: CallScope): void {
    scope.close();
    this.#open.delete(scope);
  }

  endInfrastructure(): void {
    this.#closing = true;
    for (const [scope, rules] of this.#open) if (rules.infrastructure) scope.abort(shuttingDown());
  }

  endAll(reason: TurnError): void {
    for (const scope of this.#open.keys()) scope.abort(reason);
  }
}

type UnaryCall = ServerUnaryCall<Buffer, Uint8Array>;
type StreamCall = ServerWritableStream<Buffer, Uint8Array> | ServerDuplexStream<Buffer, Uint8Array>;

function addBinding(server: Server, binding: ServiceBinding, calls: CallTable, rules: BindingRules): void {
  const definition: Record<string, MethodDefinition<Uint8Array, Uint8Array>> = {};
  const handlers: UntypedServiceImplementation = {};
  for (const method of binding.service.methods) {
    if (method.methodKind === "client_streaming")
      throw new Error(`${method.name}: client streams are not served`);
    const requestStream = method.methodKind === "bidi_streaming";
    const responseStream = method.methodKind !== "unary";
    definition[method.localName] = {
      path: `/${binding.service.typeName}/${method.name}`,
      requestStream,
      responseStream,
      requestSerialize: asBuffer,
      requestDeserialize: (bytes: Buffer) => bytes, // decoded inside the handler: grpc-js would say INTERNAL (G2)
      responseSerialize: asBuffer,
      responseDeserialize: (bytes: Buffer) => bytes,
    };
    const impl = binding.methods.get(method.localName) ?? notBuilt(method);
    handlers[method.localName] = responseStream
      ? (call: StreamCall) => void runStream(call, method, impl, calls, rules)
      : (call: UnaryCall, respond: sendUnaryData<Uint8Array>) =>
          void runUnary(call, respond, method, impl as UnaryImpl<Message, Message>, calls, rules);
  }
  server.addService(definition, handlers);
}

/** An implementation for a method that has none: UNIMPLEMENTED, naming it. */
function notBuilt(
  method: DescMethod,
): ServiceBinding["methods"] extends ReadonlyMap<string, infer I> ? I : never {
  return () => {
    throw new TurnError(ErrorCode.NOT_BUILT, {
      message: `${method.parent.typeName}.${method.name} is not built yet`,
    });
  };
}

async function runUnary(
  call: UnaryCall,
  respond: sendUnaryData<Uint8Array>,
  method: DescMethod,
  impl: UnaryImpl<Message, Message>,
  calls: CallTable,
  rules: BindingRules,
): Promise<void> {
  const scope = openScope(call, calls, rules);
  let leave: (() => void) | undefined;
  try {
    const principal = await rules.authenticate(headersOf(call));
    leave = rules.infrastructure ? undefined : calls.admission.enter(principal);
    const request = decodeRequest(method.input, call.request);
    validateRequest(method.input, request);
    const response = await abortable(impl(request, contextOf(scope, principal)), scope.signal);
    respond(null, toBinary(method.output, response));
  } catch (thrown) {
    respond({ ...toGrpcStatus(logged(thrown, method, calls)), name: "", message: "" });
  } finally {
    leave?.();
    calls.remove(scope);
  }
}

async function runStream(
  call: StreamCall,
  method: DescMethod,
  impl: ServerStreamImpl<Message, Message> | BidiImpl<Message, Message> | UnaryImpl<Message, Message>,
  calls: CallTable,
  rules: BindingRules,
): Promise<void> {
  const scope = openScope(call, calls, rules);
  const { limits } = calls;
  const writer = new FrameWriter({
    maxBufferedBytes: limits.maxBufferedBytes,
    stallMs: limits.stallMs,
    signal: scope.signal,
    write: (bytes, taken) => void call.write(bytes, taken),
    onStall: (facts) => scope.readerStalled(facts),
  });
  let leave: (() => void) | undefined;
  try {
    const principal = await rules.authenticate(headersOf(call));
    leave = rules.infrastructure ? undefined : calls.admission.enter(principal);
    const frames = openFrames(call, method, impl, calls, contextOf(scope, principal));
    await pump(frames, method, writer, scope.signal);
    await writer.drained();
    if (scope.signal.aborted) throw scope.signal.reason;
    call.end();
  } catch (thrown) {
    const status = toGrpcStatus(logged(thrown, method, calls));
    await writer.drained(); // what came before the failure arrives before it; an abort does not wait
    if (!call.destroyed) call.emit("error", status);
  } finally {
    leave?.();
    calls.remove(scope);
    resetIfStuck(call, writer, limits);
  }
}

function openFrames(
  call: StreamCall,
  method: DescMethod,
  impl: ServerStreamImpl<Message, Message> | BidiImpl<Message, Message> | UnaryImpl<Message, Message>,
  calls: CallTable,
  context: CallContext,
): AsyncIterable<StreamFrame<Message>> {
  if (method.methodKind === "bidi_streaming") {
    const requests = readRequests(call as unknown as Readable, method, calls, context.signal);
    return (impl as BidiImpl<Message, Message>)(requests, context);
  }
  const request = decodeRequest(method.input, (call as ServerWritableStream<Buffer, Uint8Array>).request);
  validateRequest(method.input, request);
  return (impl as ServerStreamImpl<Message, Message>)(request, context);
}

async function* readRequests(
  call: Readable,
  method: DescMethod,
  calls: CallTable,
  signal: AbortSignal,
): AsyncGenerator<Message> {
  try {
    // destroyOnReturn would end the answer together with the requests.
    for await (const bytes of call.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      const request = decodeRequest(method.input, bytes);
      validateRequest(method.input, request);
      yield request;
    }
  } catch (thrown) {
    throw signal.aborted ? signal.reason : thrown;
  }
}

/** Moves frames to the writer until they end, or the call is aborted. */
function pump(
  frames: AsyncIterable<StreamFrame<Message>>,
  method: DescMethod,
  writer: FrameWriter,
  signal: AbortSignal,
): Promise<void> {
  return visitUntilAborted(frames, signal, (frame) =>
    writer.write(frame.kind === "bytes" ? frame.bytes : toBinary(method.output, frame.message)),
  );
}

function openScope(call: UnaryCall | StreamCall, calls: CallTable, rules: BindingRules): CallScope {
  const scope = new CallScope();
  calls.add(scope, rules);
  const deadline = call.getDeadline();
  if (deadline !== Infinity) scope.setTimeout(Number(deadline) - Date.now(), calls.limits.maxTimeoutMs);
  (call as EventEmitter).on("cancelled", () => scope.clientLeft());
  if (call.cancelled) scope.clientLeft(); // before anybody could listen
  return scope;
}

function contextOf(scope: CallScope, principal: Principal): CallContext {
  const { timeoutMs } = scope;
  return {
    principal,
    signal: scope.signal,
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    protocol: "native-grpc",
  };
}

function headersOf(call: UnaryCall | StreamCall): { get(name: string): string | undefined } {
  return { get: (name) => call.metadata.get(name)[0]?.toString() };
}

/** Logs what is not meant for the caller, and hands the error on. */
function logged(thrown: unknown, method: DescMethod, calls: CallTable): TurnError {
  const error = TurnError.from(thrown);
  if (error.code === ErrorCode.INTERNAL) {
    calls.logger.error(
      { rpc: `${method.parent.typeName}/${method.name}`, err: error.cause ?? error },
      "call failed",
    );
  }
  return error;
}

/**
 * grpc-js sends a status behind the data, so a reader that takes nothing would keep the stream and its data for ever
 * (G3). The stream is not in the public types; without it the connection's keepalive is what is left.
 */
function resetIfStuck(call: StreamCall, writer: FrameWriter, limits: ServerLimits): void {
  const stream = (call as unknown as { call?: { stream?: ServerHttp2Stream } }).call?.stream;
  if (writer.bufferedBytes === 0 || !stream || stream.destroyed) {
    writer.close();
    return;
  }
  const timer = setTimeout(() => stream.close(constants.NGHTTP2_CANCEL), limits.cutGraceMs);
  stream.once("close", () => {
    clearTimeout(timer);
    writer.close();
  });
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
