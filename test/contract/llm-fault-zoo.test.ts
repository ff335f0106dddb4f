/**
 * The fault zoo: upstreams that misbehave in every way we know, over all dialects. Each call ends with exactly one typed end,
 * what came before it is kept, no call of a cut answer is complete, every text is valid, nothing is left open, and memory
 * does not grow. Real gRPC, real sockets.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { gzipSync } from "node:zlib";
import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { CompletionDelta } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { UsageSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import { foldDeltas } from "../support/completion-result.js";
import { FAULT_DIALECTS, type FaultDialect } from "../support/fault-dialects.js";
import {
  collectDeltas,
  completionRequest,
  llmConfig,
  startLlmPeer,
  type LlmPeer,
} from "../support/llm-peer.js";
import {
  chunkOf,
  head,
  LAST_CHUNK,
  pour,
  startRawUpstream,
  type RawScript,
  type RawUpstream,
} from "../support/raw-upstream.js";

const KEY = "AKIDZOO0123456789:zoo-secret-0123456789abcdef";
const MAX_EVENT_BYTES = 256 * 1024;
const MAX_RESPONSE_BYTES = 1024 * 1024;
const STALL_MS = 300;
const MIB = 1024 * 1024;

interface Specimen {
  readonly name: string;
  readonly api?: string;
  readonly script: RawScript;
  /** Codes it may end with; "finish" = it is understood. */
  readonly ends: readonly string[];
  /** What must be kept; undefined = whatever came. */
  readonly text?: string;
  /** The upstream goes silent: the call is given up after STALL_MS. */
  readonly stalls?: boolean;
}

const [openaiChat] = FAULT_DIALECTS as readonly [FaultDialect];
const ok = (dialect: FaultDialect): string =>
  head("200 OK", { "content-type": dialect.contentType, "transfer-encoding": "chunked" });

/** What every dialect must survive. */
function commonFaults(dialect: FaultDialect): Specimen[] {
  const { api, opening, ending, error, garbage, endless, filler } = dialect;
  const some = Buffer.concat([opening, dialect.text("a b")]);
  const start = (socket: Parameters<RawScript>[0], ...parts: Buffer[]): void => {
    socket.write(ok(dialect));
    for (const part of parts) socket.write(chunkOf(part));
  };
  const specimen = (
    name: string,
    ends: readonly string[],
    script: RawScript,
    rest: Partial<Specimen> = {},
  ) => ({
    ...{ name: `${api} - ${name}`, api, ends, script },
    ...rest,
  });
  return [
    specimen(
      "a reset instead of headers",
      ["UPSTREAM_UNAVAILABLE"],
      (socket) => void socket.resetAndDestroy(),
    ),
    specimen("an empty 200", ["UPSTREAM_TRUNCATED", "EMPTY_RESPONSE"], (socket) => {
      start(socket);
      socket.end(LAST_CHUNK);
    }),
    specimen(
      "a proper end of the body in mid-answer",
      ["UPSTREAM_TRUNCATED"],
      (socket) => {
        start(socket, some);
        socket.end(LAST_CHUNK);
      },
      { text: "a b" },
    ),
    specimen(
      "a FIN in mid-answer",
      ["UPSTREAM_TRUNCATED"],
      (socket) => {
        start(socket, some);
        socket.end();
      },
      { text: "a b" },
    ),
    specimen("a reset in mid-answer", ["UPSTREAM_TRUNCATED"], async (socket) => {
      start(socket, some);
      await new Promise(setImmediate);
      socket.resetAndDestroy();
    }),
    specimen(
      "the end in the middle of an event",
      ["UPSTREAM_TRUNCATED"],
      (socket) => {
        start(socket, some, dialect.text("never whole").subarray(0, -9));
        socket.end(LAST_CHUNK);
      },
      { text: "a b" },
    ),
    specimen(
      "the end in the middle of a character",
      ["UPSTREAM_TRUNCATED"],
      (socket) => {
        const event = dialect.text("\u{1f30d}");
        start(socket, some, event.subarray(0, event.indexOf(0xf0) + 2));
        socket.end(LAST_CHUNK);
      },
      { text: "a b" },
    ),
    specimen("an error before anything was said", ["UPSTREAM_UNAVAILABLE"], (socket) => {
      start(socket, opening, error);
      socket.end(LAST_CHUNK);
    }),
    specimen(
      "an error in mid-answer",
      ["UPSTREAM_UNAVAILABLE"],
      (socket) => {
        start(socket, some, error);
        socket.end(LAST_CHUNK);
      },
      { text: "a b" },
    ),
    specimen("garbage alone", ["UPSTREAM_MALFORMED"], (socket) => {
      start(socket, garbage);
      socket.end(LAST_CHUNK);
    }),
    specimen("silence before the first token", ["UPSTREAM_STALLED"], (socket) => start(socket), {
      stalls: true,
    }),
    specimen("silence in mid-answer", ["UPSTREAM_STALLED"], (socket) => start(socket, some), {
      ...{ stalls: true, text: "a b" },
    }),
    specimen(
      "an event without an end",
      ["UPSTREAM_MALFORMED", "SIZE_LIMIT"],
      async (socket) => {
        start(socket, some, endless);
        await pour(socket, chunkOf(filler));
      },
      { text: "a b" },
    ),
    specimen("an answer without an end", ["SIZE_LIMIT", "UPSTREAM_MALFORMED"], async (socket) => {
      start(socket, opening);
      await pour(socket, chunkOf(dialect.text("x".repeat(4_000))));
    }),
    specimen(
      "an end, then more that never ends",
      ["finish"],
      async (socket) => {
        start(socket, some, ending);
        await pour(socket, chunkOf(dialect.text("too late")));
      },
      // Gemini has no last word: what follows on a finish reason may belong to the answer.
      api === "gemini" ? {} : { text: "a b" },
    ),
    specimen("a web page", ["UPSTREAM_MALFORMED"], (socket) => {
      socket.end(`${head("200 OK", { "content-type": "text/html" })}<html>Sign in</html>`);
    }),
    specimen(
      "a JSON document that is none of its own",
      ["UPSTREAM_MALFORMED", "UPSTREAM_TRUNCATED", "EMPTY_RESPONSE"],
      (socket) => {
        socket.end(`${head("200 OK", { "content-type": "application/json" })}{"status":"ok"}`);
      },
    ),
  ];
}

/** HTTP and bytes that no dialect knows about. */
function wireFaults(): Specimen[] {
  const failure = (
    status: string,
    ends: string,
    body = "",
    headers: Readonly<Record<string, string>> = {},
  ): Specimen => ({
    name: `status ${status}${body.startsWith("<") ? " with a web page" : ""}`,
    ends: [ends],
    script: (socket) =>
      void socket.end(head(status, { "content-type": "application/json", ...headers }) + body),
  });
  const bytes = (name: string, ends: readonly string[], ...parts: (string | Buffer)[]): Specimen => ({
    ...{ name, ends },
    script: (socket) => {
      for (const part of parts) socket.write(part);
      socket.end();
    },
  });
  const stream = head("200 OK", { "content-type": "text/event-stream" });
  return [
    failure("400 Bad Request", "UPSTREAM_REJECTED", `{"error":{"message":"no"}}`),
    failure("401 Unauthorized", "UPSTREAM_AUTH", `{"error":{"message":"key ${KEY} is wrong"}}`),
    failure("403 Forbidden", "UPSTREAM_AUTH"),
    failure("404 Not Found", "UPSTREAM_REJECTED", "<html>nothing here</html>"),
    failure("413 Payload Too Large", "CONTEXT_TOO_LONG"),
    failure("429 Too Many Requests", "RATE_LIMIT", "{}", { "retry-after": "Wed, 21 Oct 2065 07:28:00 GMT" }),
    failure("429 Slow Down", "RATE_LIMIT", "{}", { "retry-after": "-5, soon" }),
    failure("500 Internal Server Error", "UPSTREAM_UNAVAILABLE", `{"error":null}`),
    failure("502 Bad Gateway", "UPSTREAM_UNAVAILABLE", "<html>nginx</html>"),
    failure("503 Service Unavailable", "UPSTREAM_UNAVAILABLE", `{"error":"loading"}`),
    failure("529 Overloaded", "UPSTREAM_UNAVAILABLE", `{"type":"error","error":{"type":"overloaded_error"}}`),
    failure("307 Temporary Redirect", "UPSTREAM_REJECTED", "", { location: "http://127.0.0.1:1/" }),
    failure("204 No Content", "UPSTREAM_TRUNCATED"),
    failure("599 ?", "UPSTREAM_UNAVAILABLE", `{"error":{"message":{"deep":[1]},"code":[],"type":7}}`),
    {
      name: "an error body that never ends",
      ends: ["UPSTREAM_UNAVAILABLE"],
      script: async (socket) => {
        socket.write(head("500 Oops"));
        await pour(socket, Buffer.alloc(16_384, "x"));
      },
    },
    bytes("no HTTP at all", ["UPSTREAM_MALFORMED", "UPSTREAM_UNAVAILABLE"], "SSH-2.0-OpenSSH_9.2\r\n"),
    bytes("a status line cut off", ["UPSTREAM_UNAVAILABLE", "UPSTREAM_MALFORMED"], "HTTP/1.1 20"),
    bytes(
      "headers without an end",
      ["UPSTREAM_MALFORMED", "UPSTREAM_UNAVAILABLE"],
      `HTTP/1.1 200 OK\r\n${"x-a: b\r\n".repeat(20_000)}`,
    ),
    bytes(
      "a chunk size that is none",
      ["UPSTREAM_MALFORMED", "UPSTREAM_TRUNCATED"],
      ok(openaiChat),
      "zz\r\nabc\r\n",
    ),
    bytes(
      "less than its content-length",
      ["UPSTREAM_TRUNCATED"],
      head("200 OK", { "content-type": "text/event-stream", "content-length": "9999" }),
      openaiChat.text("a b"),
    ),
    bytes(
      "two content-lengths",
      ["UPSTREAM_MALFORMED", "UPSTREAM_UNAVAILABLE"],
      "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    ),
    bytes(
      "gzip that nobody asked for",
      ["UPSTREAM_MALFORMED", "UPSTREAM_TRUNCATED"],
      head("200 OK", { "content-type": "text/event-stream", "content-encoding": "gzip" }),
      gzipSync(openaiChat.text("a b")),
    ),
    bytes(
      "invalid UTF-8 in a text",
      ["finish"],
      stream,
      Buffer.concat([
        Buffer.from(`data: {"choices":[{"delta":{"content":"a`),
        Buffer.of(0xff, 0xfe, 0xc0),
        Buffer.from(`b"}}]}\n\n`),
      ]),
      openaiChat.ending,
    ),
    bytes(
      "NUL and lone surrogates in a text",
      ["finish"],
      stream,
      `data: {"choices":[{"delta":{"content":"a\\u0000\\ud800b"}}]}\n\n`,
      openaiChat.ending,
    ),
    bytes(
      "half a surrogate pair at the end of all",
      ["finish"],
      stream,
      `data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n`,
      openaiChat.ending,
    ),
    bytes(
      "a negative index, an index of 1e99, no index",
      ["finish"],
      stream,
      ...[-1, 1e99, null].map(
        (index) =>
          `data: ${JSON.stringify({ choices: [{ index: 0, delta: { tool_calls: [{ index, id: `c${index}`, function: { name: "t", arguments: "{}" } }] } }] })}\n\n`,
      ),
      `data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n`,
    ),
    bytes(
      "the same tool id twenty times",
      ["finish"],
      stream,
      ...Array.from(
        { length: 20 },
        (_, index) =>
          `data: ${JSON.stringify({ choices: [{ index: 0, delta: { tool_calls: [{ index, id: "same", function: { name: "t", arguments: "{}" } }] } }] })}\n\n`,
      ),
      `data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n`,
    ),
    bytes(
      "usage below zero and beyond all bounds",
      ["finish"],
      stream,
      openaiChat.text("a"),
      `data: {"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":1e300,"total_tokens":"many"}}\n\n`,
      openaiChat.ending,
    ),
    bytes(
      "every member of another type",
      ["UPSTREAM_MALFORMED", "EMPTY_RESPONSE", "UPSTREAM_TRUNCATED"],
      stream,
      `data: {"choices":{"0":7},"usage":[],"id":{},"error":false}\n\ndata: 17\n\ndata: "x"\n\ndata: null\n\ndata: [DONE]\n\n`,
    ),
    bytes(
      "JSON a thousand levels deep",
      ["finish"],
      stream,
      `data: {"x":${"[".repeat(1_000)}${"]".repeat(1_000)},"choices":[{"delta":{"content":"a"}}]}\n\n`,
      openaiChat.ending,
    ),
    bytes(
      "a key that changes every object",
      ["finish"],
      stream,
      `data: {"__proto__":{"ended":true},"constructor":1,"choices":[{"delta":{"content":"a","__proto__":{"x":1}}}]}\n\n`,
      openaiChat.ending,
    ),
    bytes(
      "a hundred thousand comments, then an answer",
      ["finish"],
      stream,
      ": keep-alive\n\n".repeat(60_000),
      openaiChat.text("a"),
      openaiChat.ending,
    ),
    bytes(
      "five thousand deltas of one letter",
      ["finish"],
      stream,
      Buffer.concat(Array.from({ length: 5_000 }, () => openaiChat.text("x"))),
      openaiChat.ending,
    ),
    bytes(
      "a single delta of ten megabytes",
      ["UPSTREAM_MALFORMED", "SIZE_LIMIT"],
      stream,
      openaiChat.text("x".repeat(10 * MIB)),
      openaiChat.ending,
    ),
    bytes(
      "tool arguments cut in the middle",
      ["UPSTREAM_TRUNCATED"],
      stream,
      `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"t","arguments":"{\\"a\\": [1,"}}]}}]}\n\n`,
    ),
    bytes(
      "the model's key in the answer",
      ["finish"],
      stream,
      openaiChat.text(`your key is ${KEY}`),
      openaiChat.ending,
    ),
    {
      name: "a keep-alive connection closed as the call arrives",
      ends: ["UPSTREAM_UNAVAILABLE"],
      script: (socket) => void socket.end(),
    },
    {
      name: "one byte every turn of the loop",
      ends: ["finish"],
      script: async (socket) => {
        socket.write(stream);
        for (const byte of Buffer.concat([openaiChat.text("slow"), openaiChat.ending])) {
          socket.write(Buffer.of(byte));
          await new Promise(setImmediate);
        }
        socket.end();
      },
      text: "slow",
    },
    {
      name: "pings for ever, never a token",
      ends: ["UPSTREAM_STALLED"],
      stalls: true,
      script: async (socket) => {
        socket.write(stream);
        while (!socket.destroyed) {
          socket.write(": ping\n\n");
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      },
    },
  ];
}

const SPECIMENS: readonly Specimen[] = [...FAULT_DIALECTS.flatMap(commonFaults), ...wireFaults()];
const modelOf = (at: number): string => `m${at}`;

let upstream: RawUpstream;
let peer: LlmPeer;
let closedPort: number;

beforeAll(async () => {
  upstream = await startRawUpstream();
  const gone = await startRawUpstream();
  closedPort = gone.port;
  await gone.close();
  const providers = SPECIMENS.map(({ api = "openai-chat", script }, at) => {
    const url = upstream.serve(`s${at}`, script);
    return `  - { name: p${at}, api: ${api}, baseUrl: "${url}", apiKeyEnv: ZOO_KEY, models: [${modelOf(at)}] }`;
  });
  const limits = `maxRetries: 0, maxEventBytes: ${MAX_EVENT_BYTES}, maxResponseBytes: ${MAX_RESPONSE_BYTES}`;
  const yaml = `
providers:
${providers.join("\n")}
  - { name: refused, api: openai-chat, baseUrl: "http://127.0.0.1:${closedPort}", models: [refused] }
  - { name: plain, api: openai-chat, baseUrl: "https://127.0.0.1:${upstream.port}", models: [plain] }
  - { name: nowhere, api: openai-chat, baseUrl: "http://does-not-exist.invalid", models: [nowhere] }
limits: { llm: { ${limits} } }`;
  peer = await startLlmPeer(llmConfig(yaml, { ZOO_KEY: KEY }));
});
afterAll(async () => {
  await peer.close();
  await upstream.close();
});

async function call(model: string, stalls = false): Promise<CompletionDelta[]> {
  const timeouts = { firstTokenTimeout: durationFromMs(STALL_MS), stallTimeout: durationFromMs(STALL_MS) };
  return collectDeltas(peer, completionRequest(model, stalls ? timeouts : {}));
}

/** What holds of every answer, whatever was done to it. */
function check({ name, ends, text }: Specimen, deltas: readonly CompletionDelta[]): void {
  const kinds = deltas.map(({ delta }) => delta.case);
  const result = foldDeltas(deltas);
  expect(
    kinds.filter((kind) => kind === "finish" || kind === "error"),
    name,
  ).toHaveLength(1);
  expect(["finish", "error"], name).toContain(kinds.at(-1));
  expect(ends, `${name}: ${JSON.stringify(result.error)}`).toContain(result.error?.code ?? "finish");
  if (text !== undefined) expect(result.text, name).toBe(text);
  if (result.error)
    expect(
      result.toolCalls.filter(({ complete, invalid }) => complete || invalid),
      name,
    ).toEqual([]);
  const all = JSON.stringify(deltas, (_, value: unknown) => (value instanceof Uint8Array ? "" : value));
  expect(all, name).not.toContain(KEY.slice(-12));
  expect(Buffer.from(all).toString(), name).toBe(all);
  for (const { delta } of deltas) {
    if (delta.case !== "usage") continue;
    const { inputTokens, outputTokens } = delta.value.usage ?? create(UsageSchema);
    expect(inputTokens >= 0 && outputTokens >= 0 && outputTokens <= 0xffffffff, name).toBe(true);
  }
}

/** All of them, eight at once. */
async function visitAll(): Promise<void> {
  let next = 0;
  const visit = async (): Promise<void> => {
    while (next < SPECIMENS.length) {
      const at = next++;
      const specimen = SPECIMENS[at]!;
      check(specimen, await call(modelOf(at), specimen.stalls));
    }
  };
  await Promise.all(Array.from({ length: 8 }, visit));
}

describe("llm peer - the fault zoo", () => {
  test("it is large enough", () => expect(SPECIMENS.length).toBeGreaterThanOrEqual(60));

  test.each(SPECIMENS.map((specimen, at) => ({ ...specimen, at })))("$name", async (specimen) => {
    check(specimen, await call(modelOf(specimen.at), specimen.stalls));
  });

  test.each([
    ["refused", "UPSTREAM_UNAVAILABLE"],
    ["plain", "UPSTREAM_UNAVAILABLE"],
    ["nowhere", "UPSTREAM_UNAVAILABLE"],
  ])("a connection that does not come about: %s", async (model, code) => {
    expect(foldDeltas(await call(model)).error).toMatchObject({ code, retryable: true });
  });

  test("memory does not grow, and no connection stays", { timeout: 120_000 }, async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const rss = (): number => {
      collect();
      return process.memoryUsage().rss;
    };
    await visitAll(); // all code and tables are loaded
    const before = rss();
    await visitAll();
    const grown = (rss() - before) / MIB;
    expect(grown).toBeLessThanOrEqual(32);
  });
});
