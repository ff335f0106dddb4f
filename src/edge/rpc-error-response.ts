/**
 * Says an error to a caller before connect has seen the request, in the protocol the request speaks: Connect unary and
 * GET (HTTP status and JSON), Connect streams (an end-of-stream envelope), gRPC (trailers) and gRPC-Web (headers alone).
 */
import { Code } from "@connectrpc/connect";
import {
  codeToHttpStatus,
  endStreamFlag,
  endStreamToJson,
  errorToJson,
} from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { toConnectError } from "../lib/rpc/status.js";
import type { ServerResponse } from "node:http";
import type { EdgeRequest, EdgeResponse } from "./listener.js";
import { addTrailers, refuseRest, takeRest } from "./response-writer.js";

/** How long a client may go on sending a request that was refused, ms. */
const REST_GRACE_MS = 2_000;

/** How a request wants to be answered; undefined = it is no RPC by its content type. */
export type RpcDialect = "connect-unary" | "connect-stream" | "grpc" | "grpc-web";

/** The dialect of a request by its content type. A GET on an RPC's path is Connect. */
export function dialectOf(request: EdgeRequest): RpcDialect | undefined {
  const type = (request.headers["content-type"] ?? "").toLowerCase();
  if (type.startsWith("application/grpc-web")) return "grpc-web";
  if (type.startsWith("application/grpc")) return "grpc";
  if (type.startsWith("application/connect+")) return "connect-stream";
  if (/^application\/(proto|json)(;|$)/.test(type) || request.method === "GET") return "connect-unary";
  return undefined;
}

/** Answers with the error's status and ends the response. A request body that was not read ends its HTTP/1.1 connection. */
export function writeRpcError(request: EdgeRequest, response: EdgeResponse, thrown: unknown): void {
  const error = toConnectError(thrown);
  const dialect = dialectOf(request);
  if (request.httpVersionMajor === 1 && !request.complete) response.setHeader("connection", "close");
  if (dialect === "grpc" || dialect === "grpc-web") {
    const status = setTrailerStatus(new Headers(), error);
    // Headers count as the status only when they end the stream, and Node ends it with a frame of its own.
    if (dialect === "grpc" && "stream" in response) addTrailers(status, response);
    else status.forEach((value, name) => response.setHeader(name, value));
    end(request, response, 200, request.headers["content-type"]!);
  } else if (dialect === "connect-stream") {
    const json = Buffer.from(JSON.stringify(endStreamToJson(new Headers(), error, undefined)));
    const envelope = Buffer.alloc(5);
    envelope.writeUInt8(endStreamFlag, 0);
    envelope.writeUInt32BE(json.length, 1);
    end(request, response, 200, request.headers["content-type"]!, Buffer.concat([envelope, json]));
  } else {
    if (error.code === Code.Unauthenticated) response.setHeader("www-authenticate", "Bearer");
    end(
      request,
      response,
      codeToHttpStatus(error.code),
      "application/json",
      Buffer.from(JSON.stringify(errorToJson(error, undefined))),
    );
  }
}

function end(
  request: EdgeRequest,
  response: EdgeResponse,
  status: number,
  contentType: string,
  body = Buffer.alloc(0),
): void {
  response.setHeader("content-type", contentType);
  if (body.length > 0) response.setHeader("content-length", body.length);
  response.writeHead(status);
  if (body.length > 0) (response as ServerResponse).write(body);
  void takeRest(response, REST_GRACE_MS).then(() =>
    // both kinds of response take a callback
    (response as ServerResponse).end(() => refuseRest(request, response)),
  );
}
