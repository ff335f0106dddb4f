/**
 * Serves bound services over Connect, gRPC and gRPC-Web with connect's router, behind our own door: who calls, how many
 * calls, what the request holds, how the answer is written.
 *
 * E1: bytes frames go out as they came in for binary codecs; only JSON decodes them.
 * E2: identity and admission are settled before the body is read.
 * E3: every call ends, as in grpc-server.ts G3; both share CallScope, FrameWriter, Admission and status.ts.
 */
import type { DescMessage, DescMethod, Message } from "@bufbuild/protobuf";
import { create, fromBinary } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import type { HandlerContext } from "@connectrpc/connect";
import {
  ConnectError,
  Code,
  createConnectRouter,
  createContextKey,
  createContextValues,
} from "@connectrpc/connect";
import type { UniversalHandler } from "@connectrpc/connect/protocol";
import {
  compressionBrotli,
  compressionGzip,
  universalRequestFromNodeRequest,
} from "@connectrpc/connect-node";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import { Admission } from "../lib/rpc/admission.js";
import { CallScope, shuttingDown } from "../lib/rpc/call-scope.js";
import type { HealthState } from "../lib/rpc/health.js";
import { healthService } from "../lib/rpc/health.js";
import type { ServerLimits } from "../lib/rpc/limits.js";
import { reflectionServices } from "../lib/rpc/reflection.js";
import type {
  Authenticate,
  BidiImpl,
  CallContext,
  Principal,
  ServerStreamImpl,
  ServiceBinding,
  StreamFrame,
  UnaryImpl,
} from "../lib/rpc/service-binding.js";
import { toConnectError } from "../lib/rpc/status.js";
import { untilAborted } from "../lib/rpc/until-aborted.js";
import type { RequestValidator } from "../lib/rpc/validation.js";
import { createRequestValidator } from "../lib/rpc/validation.js";
import { abortable } from "../lib/signals.js";
import type { EdgeRequest, EdgeResponse } from "./listener.js";
import { checkQuery, passGate } from "./request-gate.js";
import { refuseRest, reset, writeResponse } from "./response-writer.js";
import { writeRpcError } from "./rpc-error-response.js";

export interface ConnectServerOptions {
  readonly services: readonly ServiceBinding[];
  readonly authenticate: Authenticate;
  readonly health: HealthState;
  readonly logger: Logger;
  readonly limits: ServerLimits;
  /** Time for a request message to arrive, ms. */
  readonly bodyTimeoutMs: number;
  /** Compress streamed messages for clients that accept it. Off: packets are small, and logged bytes stay as they are. */
  readonly compressStreams: boolean;
}

export interface ConnectServer {
  /** True when the path is one of an RPC; the response is then this server's. */
  handle(request: EdgeRequest, response: EdgeResponse): boolean;
  /** Open calls, health and reflection left out. */
  readonly openCalls: number;
  /** Ends health and reflection streams. */
  endInfrastructure(): void;
  /** Ends every open call with UNAVAILABLE. */
  endAll(): void;
}

/** Makes the request handler of all three protocols. */
export function createConnectServer(options: ConnectServerOptions): ConnectServer {
  const door = new Door(options);
  const descs = options.services.map((binding) => binding.service);
  const infrastructure = reflectionServices(descs);
  const health = healthService(
    options.health,
    descs.map((desc) => desc.typeName),
  );
  const routes = new Map<string, Route>();
  for (const binding of options.services)
    addRoutes(routes, binding, options, { authenticate: options.authenticate, infrastructure: false });
  for (const binding of infrastructure)
    addRoutes(routes, binding, options, { authenticate: options.authenticate, infrastructure: true });
  addRoutes(routes, health, options, { authenticate: () => NOBODY, infrastructure: true });

  return {
    handle(request, response) {
      const route = routes.get(pathOf(request));
      if (!route) return false;
      void door.admit(route, request, response);
      return true;
    },
    get openCalls() {
      return door.admission.open;
    },
    endInfrastructure: () => door.end((route) => route.rules.infrastructure),
    endAll: () => door.end(() => true),
  };
}

const NOBODY: Principal = { tenantId: "", userId: "", admin: false };

interface RouteRules {
  readonly authenticate: Authenticate;
  readonly infrastructure: boolean;
}

interface Route {
  readonly method: DescMethod;
  readonly handler: UniversalHandler;
  readonly rules: RouteRules;
}

/** What the door knows and the implementation needs. */
interface Admitted {
  readonly principal: Principal;
  readonly scope: CallScope;
}

const admittedKey = createContextKey<Admitted | undefined>(undefined, { description: "turnwire call" });

function addRoutes(
  routes: Map<string, Route>,
  binding: ServiceBinding,
  options: ConnectServerOptions,
  rules: RouteRules,
): void {
  const { limits } = options;
  const router = createConnectRouter({
    readMaxBytes: limits.maxReceiveBytes,
    maxTimeoutMs: limits.maxTimeoutMs,
    acceptCompression: COMPRESSIONS,
    jsonOptions: { ignoreUnknownFields: false },
  });
  for (const method of binding.service.methods) {
    const streams = method.methodKind !== "unary";
    router.rpc(method, implementationOf(method, binding, options.logger) as never, {
      compressMinBytes: streams && !options.compressStreams ? NEVER_COMPRESS : COMPRESS_FROM_BYTES,
    });
  }
  for (const handler of router.handlers)
    routes.set(handler.requestPath, { method: handler.method, handler, rules });
}

const COMPRESSIONS = [compressionGzip, compressionBrotli];
const COMPRESS_FROM_BYTES = 1024;
const NEVER_COMPRESS = 0xffffffff;

/** Lets a call in (E2), runs it and writes its answer. Owns the set of open calls. */
class Door {
  readonly admission: Admission;
  readonly #options: ConnectServerOptions;
  readonly #validate: RequestValidator = createRequestValidator();
  readonly #open = new Map<CallScope, Route>();

  constructor(options: ConnectServerOptions) {
    this.#options = options;
    this.admission = new Admission(options.limits);
  }

  async admit(route: Route, request: EdgeRequest, response: EdgeResponse): Promise<void> {
    const scope = new CallScope();
    response.once("close", () => !response.writableEnded && scope.clientLeft());
    this.#open.set(scope, route);
    let leave: (() => void) | undefined;
    try {
      const principal = await route.rules.authenticate(headersOf(request));
      leave = route.rules.infrastructure ? undefined : this.admission.enter(principal);
      await this.#run(route, request, response, { principal, scope });
    } catch (thrown) {
      this.#fail(thrown, route, request, response);
    } finally {
      leave?.();
      scope.close();
      this.#open.delete(scope);
    }
  }

  end(wanted: (route: Route) => boolean): void {
    for (const [scope, route] of this.#open) if (wanted(route)) scope.abort(shuttingDown());
  }

  async #run(route: Route, request: EdgeRequest, response: EdgeResponse, admitted: Admitted): Promise<void> {
    const values = createContextValues().set(admittedKey, admitted);
    const universal = universalRequestFromNodeRequest(request as never, response as never, undefined, values);
    const body = await this.#checked(route, request, admitted.scope);
    const { signal } = admitted.scope;
    const answer = await route.handler({ ...universal, signal, ...(body ? { body } : {}) });
    await writeResponse(answer, response, admitted.scope, this.#options.limits);
    refuseRest(request, response);
  }

  async #checked(
    route: Route,
    request: EdgeRequest,
    scope: CallScope,
  ): Promise<AsyncIterable<Uint8Array> | undefined> {
    const { method, handler } = route;
    const isGet = request.method === "GET";
    const wanted = isGet
      ? method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS
      : request.method === "POST" && handler.supportedContentType(request.headers["content-type"] ?? "");
    if (!wanted || method.methodKind === "bidi_streaming") return undefined;
    const gate = {
      maxReceiveBytes: this.#options.limits.maxReceiveBytes,
      bodyTimeoutMs: this.#options.bodyTimeoutMs,
      compressions: COMPRESSIONS,
      validate: this.#validate,
      signal: scope.signal,
    };
    if (!isGet) return passGate(request, method, gate);
    await checkQuery(request.url ?? "", method, gate);
    return undefined;
  }

  #fail(thrown: unknown, route: Route, request: EdgeRequest, response: EdgeResponse): void {
    logInternal(thrown, route.method, this.#options.logger);
    if (response.headersSent || response.destroyed) reset(response);
    else writeRpcError(request, response, thrown);
  }
}

function implementationOf(
  method: DescMethod,
  binding: ServiceBinding,
  logger: Logger,
): (request: never, context: HandlerContext) => unknown {
  const impl = binding.methods.get(method.localName);
  if (method.methodKind === "unary") {
    return (request, context) =>
      runUnary(impl as UnaryImpl<Message, Message>, method, request, context, logger);
  }
  return (request, context) =>
    runStream(impl as ServerStreamImpl<Message, Message>, method, request, context, logger);
}

async function runUnary(
  impl: UnaryImpl<Message, Message> | undefined,
  method: DescMethod,
  request: Message,
  context: HandlerContext,
  logger: Logger,
): Promise<Message> {
  try {
    if (!impl) throw notBuilt(method);
    const call = openCall(context);
    return await abortable(impl(request, call), call.signal);
  } catch (thrown) {
    logInternal(thrown, method, logger);
    throw toConnectError(thrown);
  }
}

async function* runStream(
  impl: ServerStreamImpl<Message, Message> | BidiImpl<Message, Message> | undefined,
  method: DescMethod,
  request: Message | AsyncIterable<Message>,
  context: HandlerContext,
  logger: Logger,
): AsyncGenerator<Message> {
  try {
    if (!impl) throw notBuilt(method);
    const call = openCall(context);
    const json = /[/+]json/.test(context.requestHeader.get("content-type") ?? "");
    const frames = (impl as (request: unknown, context: CallContext) => AsyncIterable<StreamFrame<Message>>)(
      request,
      call,
    );
    for await (const frame of untilAborted(frames, call.signal)) {
      if (frame.kind === "message") yield frame.message;
      else yield json ? fromBinary(method.output, frame.bytes) : encodedMessage(method.output, frame.bytes);
    }
  } catch (thrown) {
    logInternal(thrown, method, logger);
    throw toConnectError(thrown);
  }
}

/** Joins the deadline into the call's scope and makes the implementation's view of it. */
function openCall(context: HandlerContext): CallContext {
  const admitted = context.values.get(admittedKey);
  if (!admitted) throw new Error("a call that did not come through the door");
  const { scope, principal } = admitted;
  const timeoutMs = context.timeoutMs();
  if (timeoutMs !== undefined) scope.setTimeout(timeoutMs, Infinity);
  const protocol = context.protocolName;
  return { principal, signal: scope.signal, ...(timeoutMs === undefined ? {} : { timeoutMs }), protocol };
}

/**
 * A message that encodes to exactly these bytes (E1): no known field is set, and the encoder writes unknown fields as
 * they are. All bytes behind the first tag pass as that field's data.
 */
export function encodedMessage(desc: DescMessage, bytes: Uint8Array): Message {
  const message = create(desc);
  if (bytes.length === 0) return message;
  let tag = 0;
  let length = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[length++];
    if (byte === undefined || shift > 28) throw new Error(`not the encoding of a ${desc.typeName}`);
    tag |= (byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  tag >>>= 0;
  message.$unknown = [{ no: tag >>> 3, wireType: tag & 7, data: bytes.subarray(length) }];
  return message;
}

function notBuilt(method: DescMethod): TurnError {
  return new TurnError(ErrorCode.NOT_BUILT, {
    message: `${method.parent.typeName}.${method.name} is not built yet`,
  });
}

function logInternal(thrown: unknown, method: DescMethod, logger: Logger): void {
  if (thrown instanceof ConnectError && thrown.code !== Code.Internal) return;
  const error = TurnError.from(thrown);
  if (error.code !== ErrorCode.INTERNAL) return;
  logger.error({ rpc: `${method.parent.typeName}/${method.name}`, err: error.cause ?? error }, "call failed");
}

function headersOf(request: EdgeRequest): { get(name: string): string | undefined } {
  return {
    get(name) {
      const value = request.headers[name];
      return Array.isArray(value) ? value[0] : value;
    },
  };
}

function pathOf(request: EdgeRequest): string {
  const url = request.url ?? "";
  const query = url.indexOf("?");
  return query < 0 ? url : url.slice(0, query);
}
