/** The tool peer as it is served: built-in tools over real gRPC. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import {
  ToolCallState,
  ToolFamily,
  ToolOutcome,
  ToolService,
} from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import { systemClock } from "../../src/lib/clock.js";
import { newId } from "../../src/lib/ids.js";
import { silentLogger } from "../../src/lib/log.js";
import { createGrpcClient, type GrpcClient } from "../../src/lib/rpc/grpc-client.js";
import { type GrpcServer, serveGrpc } from "../../src/lib/rpc/grpc-server.js";
import { HealthState } from "../../src/lib/rpc/health.js";
import { createBuiltinTools } from "../../src/tool/builtin/builtin-tools.js";
import { createToolRegistry, type ToolRegistry } from "../../src/tool/registry.js";
import { createToolService } from "../../src/tool/service.js";
import { startWebPages, type WebPages } from "../support/web-pages.js";

let web: WebPages;
let registry: ToolRegistry;
let server: GrpcServer;
let client: GrpcClient<typeof ToolService>;
const caller = { tenantId: "t", userId: "u", turnId: "turn", epoch: 1 };
const signal = new AbortController().signal;

beforeAll(async () => {
  web = await startWebPages();
  registry = createToolRegistry(
    createBuiltinTools({ clock: systemClock, openUrl: { allowHosts: [web.host] } }),
  );
  const health = new HealthState();
  server = await serveGrpc({
    host: "127.0.0.1",
    port: 0,
    services: [createToolService({ registry, clock: systemClock, logger: silentLogger })],
    authenticate: () => ({ tenantId: "peer", userId: "peer", admin: true }),
    health,
    logger: silentLogger,
  });
  health.set(true);
  client = createGrpcClient(ToolService, { addresses: `127.0.0.1:${server.port}`, logger: silentLogger });
  await client.ready(signal);
});
afterAll(async () => {
  client.close();
  await server.close(1_000);
  await registry.close();
  await web.close();
});

test("grpc - lists clock and open_url with their schemas", async () => {
  const { tools, revision } = await client.unary("listTools", {}, { signal });
  expect(tools.map(({ toolId, family, idempotent }) => [toolId, family, idempotent])).toEqual([
    ["clock", ToolFamily.CUSTOM, true],
    ["open_url", ToolFamily.OPEN_URL, true],
  ]);
  for (const tool of tools) expect(JSON.parse(tool.parametersJsonSchema)).toMatchObject({ type: "object" });
  expect(tools[1]?.mergeArgument).toBe("urls");
  expect(revision).not.toBe("");
});

test("grpc - open_url streams its packets, then its result, and the ledger knows it", async () => {
  const request = {
    caller,
    toolId: "open_url",
    callId: "c1",
    idempotencyKey: "key-1",
    firstCitationNumber: 3,
    argumentsJson: JSON.stringify({ urls: [web.url("/article"), web.url("/pdf")] }),
  };
  const kinds: (string | undefined)[] = [];
  for await (const { event } of client.serverStream("executeTool", request, { signal, timeoutMs: 20_000 })) {
    kinds.push(event.case === "packet" ? event.value.packet?.payload.case : event.case);
    if (event.case !== "result") continue;
    expect(event.value.outcome).toBe(ToolOutcome.OK);
    expect(event.value.documents.map((document) => document.citationNumber)).toEqual([3, 4]);
  }
  expect(kinds).toEqual(["openUrlStart", "openUrlUrls", "openUrlDocuments", "result"]);
  const known = await client.unary("getToolCall", { caller, idempotencyKey: "key-1" }, { signal });
  expect(known.state).toBe(ToolCallState.SETTLED);
  expect(known.result?.documents).toHaveLength(2);
  expect(web.openSockets()).toBe(0);
});

test("grpc - cancelling the call closes the page's socket", async () => {
  const abort = new AbortController();
  const request = {
    caller,
    toolId: "open_url",
    idempotencyKey: newId(),
    argumentsJson: JSON.stringify({ urls: [web.url("/silent")] }),
  };
  const stream = client.serverStream("executeTool", request, { signal: abort.signal });
  const reading = (async () => {
    for await (const message of stream) expect(message.event.case).toBe("packet");
  })();
  await web.requested("/silent");
  abort.abort(new Error("enough"));
  await expect(reading).rejects.toThrow("enough");
  await web.socketsDownTo(0);
});

test("grpc - the RPC's deadline gives a TIMEOUT result, not a torn stream", async () => {
  const request = {
    caller,
    toolId: "open_url",
    idempotencyKey: newId(),
    argumentsJson: JSON.stringify({ urls: [web.url("/drip")] }),
  };
  const events = [];
  for await (const { event } of client.serverStream("executeTool", request, { signal, timeoutMs: 5_000 }))
    events.push(event);
  expect(events.at(-1)).toMatchObject({ case: "result", value: { outcome: ToolOutcome.TIMEOUT } });
  await web.socketsDownTo(0);
});

test("grpc - an unknown tool is a typed status", async () => {
  const stream = client.serverStream(
    "executeTool",
    { caller, toolId: "nope", idempotencyKey: newId() },
    { signal },
  );
  await expect(stream.next()).rejects.toMatchObject({ code: ErrorCode.TOOL_NOT_FOUND });
});

test("grpc - 30 clock calls at once", async () => {
  const call = async (): Promise<string> => {
    const request = {
      caller,
      toolId: "clock",
      idempotencyKey: newId(),
      argumentsJson: '{"timezone":"Europe/Berlin"}',
      resultOnly: true,
    };
    for await (const { event } of client.serverStream("executeTool", request, {
      signal: new AbortController().signal,
    })) {
      if (event.case === "result") return event.value.modelText;
    }
    throw new Error("no result");
  };
  const settled = await Promise.allSettled(Array.from({ length: 30 }, call));
  const refused = settled.filter((each) => each.status === "rejected");
  for (const each of refused) expect(each.reason).toMatchObject({ code: ErrorCode.OVERLOADED });
  expect(settled.length - refused.length).toBeGreaterThanOrEqual(16);
});
