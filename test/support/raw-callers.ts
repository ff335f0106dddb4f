/**
 * One RPC over every protocol, from the request's raw bytes to what a client is told: for requests that no typed client
 * would send. Every answer is brought into one form, so that protocols can be compared.
 */
import http from "node:http";
import { create, fromBinary, fromJson, toBinary, toJsonString, type DescMessage } from "@bufbuild/protobuf";
import type { DescMethod, MessageInitShape } from "@bufbuild/protobuf";
import type { Code } from "@connectrpc/connect";
import { codeFromString } from "@connectrpc/connect/protocol-connect";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../gen/google/rpc/status_pb.js";
import type { TurnwireProcess } from "./turnwire-process.js";

/** How a call ended: `code` undefined = well. */
export interface Outcome {
  readonly code: Code | undefined;
  readonly message: string;
  /** google.rpc.ErrorInfo, as every status of ours has it. */
  readonly reason: string;
  readonly facts: Readonly<Record<string, string>>;
  /** All details, each as its type and the base64 of its bytes. */
  readonly details: readonly string[];
  /** The response messages, encoded (as JSON text for JSON callers). */
  readonly responses: readonly Uint8Array[];
}

export interface RawCaller {
  readonly name: string;
  readonly json: boolean;
  /** Sends these bytes as the request message, whatever they are. */
  send(method: DescMethod, bytes: Uint8Array): Promise<Outcome>;
  close(): void;
}

/** How long a call may take, ms. */
const DEADLINE_MS = 30_000;

/** Sends a valid message in the caller's encoding. */
export function call<Input extends DescMessage>(
  caller: RawCaller,
  method: DescMethod & { readonly input: Input },
  request: MessageInitShape<Input>,
): Promise<Outcome> {
  const message = create(method.input, request);
  return caller.send(
    method,
    caller.json ? Buffer.from(toJsonString(method.input, message)) : toBinary(method.input, message),
  );
}

/** The responses of a call that went well, decoded. */
export function responsesOf<Output extends DescMessage>(
  caller: RawCaller,
  method: DescMethod & { readonly output: Output },
  outcome: Outcome,
) {
  return outcome.responses.map((bytes) =>
    caller.json
      ? fromJson(method.output, JSON.parse(Buffer.from(bytes).toString()))
      : fromBinary(method.output, bytes),
  );
}

/** Connect JSON, Connect binary, gRPC-Web over HTTP/1.1, gRPC on the shared and on the native port. */
export function rawCallers(
  server: Pick<TurnwireProcess, "httpUrl" | "grpcAddress">,
  token?: string,
): RawCaller[] {
  const headers: Record<string, string> = token ? { authorization: `Bearer ${token}` } : {};
  const { host } = new URL(server.httpUrl);
  return [
    connectCaller("Connect JSON", server.httpUrl, headers, "json"),
    connectCaller("Connect binary", server.httpUrl, headers, "proto"),
    grpcWebCaller(server.httpUrl, headers),
    grpcCaller("gRPC, shared port", host, headers),
    grpcCaller("gRPC, native port", server.grpcAddress, headers),
  ];
}

function connectCaller(
  name: string,
  baseUrl: string,
  headers: Record<string, string>,
  codec: "json" | "proto",
): RawCaller {
  const agent = new http.Agent({ keepAlive: true });
  return {
    name,
    json: codec === "json",
    close: () => agent.destroy(),
    async send(method, bytes) {
      const unary = method.methodKind === "unary";
      const answer = await post(agent, `${baseUrl}${pathOf(method)}`, unary ? bytes : envelope(bytes), {
        ...headers,
        "connect-protocol-version": "1",
        "content-type": `application/${unary ? "" : "connect+"}${codec}`,
      });
      if (!unary) return endOfConnectStream(answer.body);
      return answer.status === 200 ? good([answer.body]) : connectError(answer);
    },
  };
}

function endOfConnectStream(body: Buffer): Outcome {
  const envelopes = splitEnvelopes(body);
  const last = envelopes.at(-1);
  if (!last || (last.flags & 2) === 0) throw new Error("the stream has no end");
  const responses = envelopes.slice(0, -1).map((each) => each.data);
  const end = JSON.parse(last.data.toString()) as { error?: unknown };
  return end.error ? { ...outcomeOfConnectError(end.error), responses } : good(responses);
}

function connectError(answer: HttpAnswer): Outcome {
  if (!String(answer.headers["content-type"]).includes("json"))
    throw new Error(`HTTP ${answer.status} without a Connect error: ${answer.body.toString().slice(0, 200)}`);
  return outcomeOfConnectError(JSON.parse(answer.body.toString()));
}

interface ConnectErrorJson {
  readonly code: string;
  readonly message?: string;
  readonly details?: readonly { readonly type: string; readonly value: string }[];
}

function outcomeOfConnectError(json: unknown): Outcome {
  const { code, message, details } = json as ConnectErrorJson;
  const known = codeFromString(code);
  if (known === undefined) throw new Error(`"${code}" is no code of Connect`);
  return bad(
    known,
    message ?? "",
    (details ?? []).map(({ type, value }) => ({ type, value: Buffer.from(value, "base64") })),
  );
}

function grpcWebCaller(baseUrl: string, headers: Record<string, string>): RawCaller {
  const agent = new http.Agent({ keepAlive: true });
  return {
    name: "gRPC-Web",
    json: false,
    close: () => agent.destroy(),
    async send(method, bytes) {
      const answer = await post(agent, `${baseUrl}${pathOf(method)}`, envelope(bytes), {
        ...headers,
        "content-type": "application/grpc-web+proto",
        "x-grpc-web": "1",
      });
      const envelopes = splitEnvelopes(answer.body);
      const trailer = envelopes.find((each) => (each.flags & 0x80) !== 0);
      const fields = trailer ? parseTrailer(trailer.data.toString()) : new Map(headerEntries(answer.headers));
      const responses = envelopes.filter((each) => each !== trailer).map((each) => each.data);
      return {
        ...grpcOutcome(
          Number(fields.get("grpc-status")),
          decodeURIComponent(fields.get("grpc-message") ?? ""),
          fields.get("grpc-status-details-bin"),
        ),
        responses,
      };
    },
  };
}

function headerEntries(headers: http.IncomingHttpHeaders): [string, string][] {
  return Object.entries(headers).map(([name, value]) => [name, String(value)]);
}

function parseTrailer(text: string): Map<string, string> {
  return new Map(
    text
      .split("\r\n")
      .filter((line) => line !== "")
      .map((line): [string, string] => [
        line.slice(0, line.indexOf(":")).toLowerCase(),
        line.slice(line.indexOf(":") + 1).trim(),
      ]),
  );
}

/** grpc-js, as Python's and Go's clients speak. */
function grpcCaller(name: string, address: string, headers: Record<string, string>): RawCaller {
  const client = new Client(address, credentials.createInsecure(), {
    "grpc.max_send_message_length": -1,
    "grpc.use_local_subchannel_pool": 1,
  });
  const metadata = new Metadata();
  for (const [key, value] of Object.entries(headers)) metadata.set(key, value);
  return {
    name,
    json: false,
    close: () => client.close(),
    send(method, bytes) {
      const same = (value: Buffer): Buffer => value;
      return new Promise((resolve) => {
        const responses: Buffer[] = [];
        const stream = client.makeServerStreamRequest(
          pathOf(method),
          same,
          same,
          Buffer.from(bytes),
          metadata,
          { deadline: Date.now() + DEADLINE_MS },
        );
        stream.on("data", (message: Buffer) => responses.push(message));
        stream.on("error", (error: ServiceError) => {
          const [encoded] = error.metadata.get("grpc-status-details-bin");
          resolve({
            ...grpcOutcome(error.code, error.details, encoded as Buffer | undefined),
            responses,
          });
        });
        stream.on("end", () => resolve(good(responses)));
      });
    },
  };
}

function grpcOutcome(code: number, message: string, encoded: string | Buffer | undefined): Outcome {
  if (code === 0) return good([]);
  const bytes = typeof encoded === "string" ? Buffer.from(encoded, "base64") : encoded;
  const status = bytes && fromBinary(StatusSchema, bytes);
  const details = (status?.details ?? []).map((detail) => ({
    type: detail.typeUrl.slice(detail.typeUrl.lastIndexOf("/") + 1),
    value: detail.value,
  }));
  return bad(code, message, details);
}

function good(responses: readonly Uint8Array[]): Outcome {
  return { code: undefined, message: "", reason: "", facts: {}, details: [], responses };
}

function bad(
  code: Code,
  message: string,
  details: readonly { readonly type: string; readonly value: Uint8Array }[],
): Outcome {
  const encoded = details.find((detail) => detail.type === ErrorInfoSchema.typeName);
  const info = encoded && fromBinary(ErrorInfoSchema, encoded.value);
  return {
    code,
    message,
    reason: info?.reason ?? "",
    facts: info?.metadata ?? {},
    details: details.map((detail) => `${detail.type} ${Buffer.from(detail.value).toString("base64")}`),
    responses: [],
  };
}

interface HttpAnswer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: Buffer;
}

function post(
  agent: http.Agent,
  url: string,
  body: Uint8Array,
  headers: Record<string, string>,
): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const request = http.request(
      url,
      { method: "POST", agent, headers: { ...headers, "content-length": body.length }, timeout: DEADLINE_MS },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", reject);
        response.on("end", () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            body: Buffer.concat(chunks),
          }),
        );
      },
    );
    request.on("timeout", () => request.destroy(new Error("no answer in time")));
    request.on("error", reject);
    request.end(body);
  });
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function envelope(data: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
}

function splitEnvelopes(body: Buffer): { readonly flags: number; readonly data: Buffer }[] {
  const envelopes: { flags: number; data: Buffer }[] = [];
  for (let at = 0; at + 5 <= body.length;) {
    const length = body.readUInt32BE(at + 1);
    envelopes.push({ flags: body[at]!, data: body.subarray(at + 5, at + 5 + length) });
    at += 5 + length;
  }
  return envelopes;
}
