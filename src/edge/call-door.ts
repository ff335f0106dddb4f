/**
 * The door of the edge: who calls, how many calls, what the request holds, how the answer is written, whatever serves
 * the RPC behind it. Owns: the set of open calls and their scopes.
 *
 * D1: identity and admission are settled before the body is read.
 * D2: every call ends, as in grpc-server.ts G3; both share CallScope, FrameWriter, Admission and status.ts.
 */
import type { DescMethod, JsonReadOptions } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import type { HandlerContext } from "@connectrpc/connect";
import { Code, ConnectError, createContextKey, createContextValues } from "@connectrpc/connect";
import {
  compressionBrotli,
  compressionGzip,
  universalRequestFromNodeRequest,
} from "@connectrpc/connect-node";
import type { UniversalHandler } from "@connectrpc/connect/protocol";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Logger } from "../lib/log.js";
import { Admission } from "../lib/rpc/admission.js";
import { CallScope, shuttingDown } from "../lib/rpc/call-scope.js";
import type { ServerLimits } from "../lib/rpc/limits.js";
import type { Authenticate, Principal } from "../lib/rpc/service-binding.js";
import type { EdgeRequest, EdgeResponse } from "./listener.js";
import { checkQuery, chunksOf, passGate } from "./request-gate.js";
import { refuseRest, reset, writeResponse } from "./response-writer.js";
import { writeRpcError } from "./rpc-error-response.js";

/** The compressions that requests may use and clients may ask for. */
export const COMPRESSIONS = [compressionGzip, compressionBrotli];

export interface CallDoorOptions {
  readonly logger: Logger;
  readonly limits: ServerLimits;
  /** Time for a request message to arrive, ms. */
  readonly bodyTimeoutMs: number;
  /** How JSON requests are read; unknown fields are refused unless this says otherwise. */
  readonly jsonOptions?: Partial<JsonReadOptions>;
}

export interface RouteRules {
  readonly authenticate: Authenticate;
  /** Health and reflection: not counted, and ended at once on shutdown. */
  readonly infrastructure: boolean;
}

/** One RPC as connect serves it, and how to let its callers in. */
export interface Route {
  readonly method: DescMethod;
  readonly handler: UniversalHandler;
  readonly rules: RouteRules;
}

/** What the door knows and the implementation needs. */
export interface Admitted {
  readonly principal: Principal;
  readonly scope: CallScope;
}

const admittedKey = createContextKey<Admitted | undefined>(undefined, { description: "turnwire call" });

/** The call a handler's context belongs to. */
export function admittedOf(context: HandlerContext): Admitted {
  const admitted = context.values.get(admittedKey);
  if (!admitted) throw new Error("a call that did not come through the door");
  return admitted;
}

export class CallDoor {
  readonly admission: Admission;
  readonly #options: CallDoorOptions;
  readonly #open = new Map<CallScope, Route>();

  constructor(options: CallDoorOptions) {
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
    const checked = await this.#checked(route, request, admitted.scope);
    const body = checked ?? (request.method === "GET" ? universal.body : chunksOf(request));
    const answer = await route.handler({ ...universal, signal: admitted.scope.signal, body });
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
    const single = method.methodKind === "unary" || method.methodKind === "server_streaming";
    if (!wanted || !single) return undefined;
    const gate = {
      maxReceiveBytes: this.#options.limits.maxReceiveBytes,
      bodyTimeoutMs: this.#options.bodyTimeoutMs,
      compressions: COMPRESSIONS,
      jsonOptions: this.#options.jsonOptions,
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

/** Logs what is not meant for the caller. */
export function logInternal(thrown: unknown, method: DescMethod, logger: Logger): void {
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
