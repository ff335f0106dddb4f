/**
 * Serves bound services over Connect, gRPC and gRPC-Web with connect's router, each call let in by the door.
 *
 * E1: bytes frames go out as they came in for binary codecs; only JSON decodes them.
 */
import type { DescMessage, DescMethod, Message } from "@bufbuild/protobuf";
import { create, fromBinary } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import { createConnectRouter } from "@connectrpc/connect";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import type { HealthState } from "../lib/rpc/health.js";
import { healthService } from "../lib/rpc/health.js";
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
import { compileRules } from "../lib/rpc/validation.js";
import { untilAborted } from "../lib/rpc/until-aborted.js";
import { abortable } from "../lib/signals.js";
import type { CallDoorOptions, Route, RouteRules } from "./call-door.js";
import { COMPRESSIONS, CallDoor, admittedOf, logInternal } from "./call-door.js";
import type { EdgeRequest, EdgeResponse } from "./listener.js";

export interface ConnectServerOptions extends CallDoorOptions {
  readonly services: readonly ServiceBinding[];
  readonly authenticate: Authenticate;
  readonly health: HealthState;
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
  const door = new CallDoor(options);
  const descs = options.services.map((binding) => binding.service);
  compileRules(descs);
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
    jsonOptions: { ignoreUnknownFields: false, ...options.jsonOptions },
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

const COMPRESS_FROM_BYTES = 1024;
const NEVER_COMPRESS = 0xffffffff;

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
  const { scope, principal } = admittedOf(context);
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

function pathOf(request: EdgeRequest): string {
  const url = request.url ?? "";
  const query = url.indexOf("?");
  return query < 0 ? url : url.slice(0, query);
}
