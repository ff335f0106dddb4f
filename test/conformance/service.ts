/**
 * connectrpc.conformance.v1.ConformanceService, as its proto describes it, for connect's router. The descriptors are
 * read from an image built from the runner's own protos, so the messages are typed here as far as they are used.
 */
import type { DescMethod, DescService, FileRegistry, Message } from "@bufbuild/protobuf";
import { create, createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import type { Any } from "@bufbuild/protobuf/wkt";
import { FileDescriptorSetSchema, anyPack } from "@bufbuild/protobuf/wkt";
import type { ConnectRouter, HandlerContext } from "@connectrpc/connect";
import { Code, ConnectError } from "@connectrpc/connect";
import { readFileSync } from "node:fs";

interface Header {
  readonly name: string;
  readonly value: readonly string[];
}

interface ConformanceError {
  readonly code: number;
  readonly message?: string;
  readonly details: readonly Any[];
}

interface ResponseDefinition {
  readonly responseHeaders: readonly Header[];
  readonly responseTrailers: readonly Header[];
  readonly responseDelayMs: number;
}

interface UnaryDefinition extends ResponseDefinition {
  readonly response:
    | { case: "responseData"; value: Uint8Array }
    | { case: "error"; value: ConformanceError }
    | { case?: undefined };
}

interface StreamDefinition extends ResponseDefinition {
  readonly responseData: readonly Uint8Array[];
  readonly error?: ConformanceError;
}

type WithDefinition<D> = Message & { readonly responseDefinition?: D; readonly fullDuplex?: boolean };

/** The descriptors of the conformance protos. */
export interface Conformance {
  readonly registry: FileRegistry;
  readonly service: DescService;
}

/** Reads an image that `buf build` made. */
export function loadConformance(imagePath: string): Conformance {
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(imagePath)));
  return { registry, service: registry.getService("connectrpc.conformance.v1.ConformanceService")! };
}

/** Adds every RPC of the service but Unimplemented. */
export function addConformanceRoutes(router: ConnectRouter, conformance: Conformance): void {
  const handlers: Record<string, (method: DescMethod) => unknown> = {
    Unary: (method) => (request: WithDefinition<UnaryDefinition>, context: HandlerContext) =>
      answerUnary(conformance, method, request.responseDefinition, [request], context),
    IdempotentUnary: (method) => (request: WithDefinition<UnaryDefinition>, context: HandlerContext) =>
      answerUnary(conformance, method, request.responseDefinition, [request], context),
    ClientStream:
      (method) =>
      async (requests: AsyncIterable<WithDefinition<UnaryDefinition>>, context: HandlerContext) => {
        const received: WithDefinition<UnaryDefinition>[] = [];
        for await (const request of requests) received.push(request);
        return answerUnary(conformance, method, received[0]?.responseDefinition, received, context);
      },
    ServerStream: (method) => (request: WithDefinition<StreamDefinition>, context: HandlerContext) =>
      answerStream(conformance, method, request, context),
    BidiStream:
      (method) => (requests: AsyncIterable<WithDefinition<StreamDefinition>>, context: HandlerContext) =>
        answerBidi(conformance, method, requests, context),
  };
  for (const method of conformance.service.methods) {
    const make = handlers[method.name];
    if (make) router.rpc(method, make(method) as never);
    else
      router.rpc(method, (() =>
        Promise.reject(new ConnectError("not implemented", Code.Unimplemented))) as never);
  }
}

async function answerUnary(
  conformance: Conformance,
  method: DescMethod,
  definition: UnaryDefinition | undefined,
  requests: readonly Message[],
  context: HandlerContext,
): Promise<Message> {
  const info = requestInfo(conformance, requests, context);
  if (definition) setHeaders(definition, context);
  await delay(definition?.responseDelayMs);
  if (definition?.response.case === "error")
    throw conformanceError(conformance, definition.response.value, info);
  return response(
    method,
    definition?.response.case === "responseData" ? definition.response.value : undefined,
    info,
  );
}

async function* answerStream(
  conformance: Conformance,
  method: DescMethod,
  request: WithDefinition<StreamDefinition>,
  context: HandlerContext,
): AsyncGenerator<Message> {
  const definition = request.responseDefinition;
  if (!definition) return;
  setHeaders(definition, context);
  const info = requestInfo(conformance, [request], context);
  for (const [index, data] of definition.responseData.entries()) {
    await delay(definition.responseDelayMs);
    yield response(method, data, index === 0 ? info : undefined);
  }
  if (definition.error)
    throw conformanceError(
      conformance,
      definition.error,
      definition.responseData.length === 0 ? info : undefined,
    );
}

async function* answerBidi(
  conformance: Conformance,
  method: DescMethod,
  requests: AsyncIterable<WithDefinition<StreamDefinition>>,
  context: HandlerContext,
): AsyncGenerator<Message> {
  let definition: StreamDefinition | undefined;
  let fullDuplex = false;
  let first = true;
  let pending: Message[] = [];
  let sent = 0;
  for await (const request of requests) {
    pending.push(request);
    if (first) {
      first = false;
      definition = request.responseDefinition;
      fullDuplex = request.fullDuplex ?? false;
      if (definition) setHeaders(definition, context);
    }
    if (!fullDuplex) continue;
    const data = definition?.responseData[sent];
    if (data === undefined) break;
    await delay(definition!.responseDelayMs);
    yield response(method, data, requestInfo(conformance, pending, sent === 0 ? context : undefined));
    sent++;
    pending = [];
  }
  if (!definition) return;
  for (; sent < definition.responseData.length; sent++) {
    await delay(definition.responseDelayMs);
    yield response(
      method,
      definition.responseData[sent],
      sent === 0 ? requestInfo(conformance, pending, context) : undefined,
    );
  }
  if (definition.error) {
    throw conformanceError(
      conformance,
      definition.error,
      sent === 0 ? requestInfo(conformance, pending, context) : undefined,
    );
  }
}

function response(method: DescMethod, data: Uint8Array | undefined, info: Message | undefined): Message {
  const payload = { ...(data ? { data } : {}), ...(info ? { requestInfo: info } : {}) };
  return create(method.output, { payload } as never);
}

/** What the server saw: headers, query and deadline only with a context. */
function requestInfo(
  conformance: Conformance,
  requests: readonly Message[],
  context?: HandlerContext,
): Message {
  const { registry } = conformance;
  const schema = registry.getMessage("connectrpc.conformance.v1.ConformancePayload.RequestInfo")!;
  const packed = requests.map((request) => anyPack(registry.getMessage(request.$typeName)!, request));
  if (!context) return create(schema, { requests: packed } as never);
  const timeoutMs = context.timeoutMs();
  const query = [...new URL(context.url).searchParams].map(([name, value]) => ({ name, value: [value] }));
  return create(schema, {
    requests: packed,
    requestHeaders: [...context.requestHeader].map(([name, value]) => ({ name, value: [value] })),
    ...(timeoutMs === undefined ? {} : { timeoutMs: BigInt(timeoutMs) }),
    ...(query.length > 0 ? { connectGetInfo: { queryParams: query } } : {}),
  } as never);
}

function conformanceError(
  conformance: Conformance,
  error: ConformanceError,
  info: Message | undefined,
): ConnectError {
  const { registry } = conformance;
  const connectError = new ConnectError(error.message ?? "", error.code as Code);
  const details = [...error.details, ...(info ? [anyPack(registry.getMessage(info.$typeName)!, info)] : [])];
  connectError.details = details.map((any) => ({
    type: any.typeUrl.slice(any.typeUrl.lastIndexOf("/") + 1),
    value: any.value,
  }));
  return connectError;
}

function setHeaders(definition: ResponseDefinition, context: HandlerContext): void {
  for (const { name, value } of definition.responseHeaders)
    for (const one of value) context.responseHeader.append(name, one);
  for (const { name, value } of definition.responseTrailers)
    for (const one of value) context.responseTrailer.append(name, one);
}

/** The delay is part of the test case: the runner asks for it to meet its own deadlines. */
function delay(ms: number | undefined): Promise<void> | undefined {
  return ms ? new Promise((resolve) => setTimeout(resolve, ms)) : undefined;
}
