/**
 * How a service is implemented once and served by every transport (connect-node at the edge, grpc-js for peers and the
 * native port): plain functions per RPC, bound to a protobuf service descriptor. Transports know nothing of the domain,
 * implementations know nothing of the transport.
 */
import type { DescMethod, DescService, Message, MessageShape } from "@bufbuild/protobuf";

/** Who calls. On loopback without tokens: tenant "local", user "local", admin. */
export interface Principal {
  readonly tenantId: string;
  readonly userId: string;
  readonly admin: boolean;
  /** Groups of the user, for access to models. Default: none. */
  readonly groups?: readonly string[];
}

/** Whose something is: a user of a tenant. */
export type Owner = Pick<Principal, "tenantId" | "userId">;

/** What every RPC implementation is given besides its request. */
export interface CallContext {
  readonly principal: Principal;
  /** Aborts when the client leaves, its deadline passes, its reader stalls, or the server shuts down. */
  readonly signal: AbortSignal;
  /** Milliseconds left of the client's deadline; undefined = none was set. */
  readonly timeoutMs?: number;
  /** "connect" | "grpc" | "grpc-web" | "native-grpc": for logs and metrics only. */
  readonly protocol: string;
}

/**
 * One message of a server stream: a message object, or bytes that already are the message's binary encoding (the log's
 * entries are sent as they are). Transports send bytes untouched in binary codecs and decode them for JSON only.
 */
export type StreamFrame<O> =
  { readonly kind: "message"; readonly message: O } | { readonly kind: "bytes"; readonly bytes: Uint8Array };

export type UnaryImpl<I, O> = (request: I, context: CallContext) => Promise<O>;
export type ServerStreamImpl<I, O> = (request: I, context: CallContext) => AsyncIterable<StreamFrame<O>>;
export type BidiImpl<I, O> = (
  requests: AsyncIterable<I>,
  context: CallContext,
) => AsyncIterable<StreamFrame<O>>;

type MethodImpl<M extends DescMethod> = M["methodKind"] extends "unary"
  ? UnaryImpl<MessageShape<M["input"]>, MessageShape<M["output"]>>
  : M["methodKind"] extends "server_streaming"
    ? ServerStreamImpl<MessageShape<M["input"]>, MessageShape<M["output"]>>
    : BidiImpl<MessageShape<M["input"]>, MessageShape<M["output"]>>;

/** Implementations by method; a method left out answers UNIMPLEMENTED, naming itself. */
export type ServiceImpl<S extends DescService> = {
  readonly [K in keyof S["method"]]?: MethodImpl<S["method"][K]>;
};

/** A descriptor with its implementation, the types erased for the transports. */
export interface ServiceBinding {
  readonly service: DescService;
  readonly methods: ReadonlyMap<
    string,
    UnaryImpl<Message, Message> | ServerStreamImpl<Message, Message> | BidiImpl<Message, Message>
  >;
}

/** Binds an implementation to its descriptor. Method keys are the descriptor's local (camelCase) names. */
export function bindService<S extends DescService>(service: S, impl: ServiceImpl<S>): ServiceBinding {
  const methods = new Map<string, UnaryImpl<Message, Message>>();
  for (const [localName, fn] of Object.entries(impl)) {
    if (typeof fn === "function") methods.set(localName, fn as UnaryImpl<Message, Message>);
  }
  return { service, methods };
}

/** Shorthand for a stream frame that holds a message object. */
export function messageFrame<O>(message: O): StreamFrame<O> {
  return { kind: "message", message };
}

/** Request headers as every transport can offer them; names are lower-case, a repeated header gives its first value. */
export interface RequestHeaders {
  get(name: string): string | undefined;
}

/** Who calls, from the request's headers. Throws TurnError UNAUTHENTICATED. */
export type Authenticate = (headers: RequestHeaders) => Principal | Promise<Principal>;
