/** Peers behind the llm peer that mean no good, over real gRPC: what they send is bounded, masked, and opens no model to others. */
import { create, toBinary } from "@bufbuild/protobuf";
import { pino } from "pino";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  CompletionDeltaSchema,
  ListModelsRequestSchema,
  ListModelsResponseSchema,
  LlmProxyService,
  ProviderStateSchema,
  StreamCompletionResponseSchema,
  type CompletionDelta,
  type ListModelsResponse,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, FinishReason, UsageSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../src/lib/errors.js";
import { silentLogger } from "../../src/lib/log.js";
import { serveGrpc, type GrpcServer } from "../../src/lib/rpc/grpc-server.js";
import { HealthState } from "../../src/lib/rpc/health.js";
import { bindService, messageFrame } from "../../src/lib/rpc/service-binding.js";
import {
  contentDelta,
  errorDelta,
  finishDelta,
  providerStateDelta,
  usageDelta,
  warningDelta,
} from "../../src/llm/deltas.js";
import { foldDeltas } from "../support/completion-result.js";
import {
  collectDeltas,
  completionRequest,
  llmConfig,
  startLlmPeer,
  type LlmPeer,
} from "../support/llm-peer.js";
import { ManualClock } from "../support/manual-clock.js";

const TOKEN = "pipe-token-0123456789";
const stop = finishDelta({ reason: FinishReason.STOP });

let server: GrpcServer;
let front: LlmPeer;
let clock: ManualClock;
/** What the peer says, one message each. */
let says: () => Iterable<readonly CompletionDelta[]> | AsyncIterable<readonly CompletionDelta[]>;
let models: () => ListModelsResponse["models"];

beforeEach(async () => {
  models = () => create(ListModelsResponseSchema, { models: [{ modelId: "a" }] }).models;
  const binding = bindService(LlmProxyService, {
    listModels: () => Promise.resolve(create(ListModelsResponseSchema, { models: models() })),
    async *streamCompletion() {
      for await (const deltas of says())
        yield messageFrame(create(StreamCompletionResponseSchema, { deltas: [...deltas] }));
    },
  });
  const health = new HealthState();
  health.set(true);
  server = await serveGrpc({
    ...{ host: "127.0.0.1", port: 0, services: [binding], health, logger: silentLogger },
    authenticate: () => ({ tenantId: "local", userId: "local", admin: true }),
  });
  clock = new ManualClock();
  front = await startLlmPeer(llmConfig(frontYaml(server.port), { TOKEN }), { clock });
});
afterEach(async () => {
  await front.close();
  await server.close(0);
});

function frontYaml(port: number): string {
  return `
providers: [{ name: pipe, api: pipe, address: "127.0.0.1:${port}", apiKeyEnv: TOKEN }]
limits: { llm: { maxRetries: 0, maxResponseBytes: 1000000, firstTokenTimeoutMs: 5000, stallTimeoutMs: 7000 } }`;
}

const usage = usageDelta(create(UsageSchema, { outputTokens: 1 }), 1);
const state = (bytes: number): CompletionDelta =>
  providerStateDelta(create(ProviderStateSchema, { data: new Uint8Array(bytes) }));

test("its token never comes out: in pieces, in a warning, in the details of its error", async () => {
  says = () => [
    [warningDelta(ErrorCode.UPSTREAM_MALFORMED, `skipped ${TOKEN}`), contentDelta(0, TOKEN.slice(0, 9))],
    [usage],
    [contentDelta(0, `${TOKEN.slice(9)}.`)],
    [errorDelta(new TurnError(ErrorCode.UPSTREAM_TRUNCATED, { details: { said: `Bearer ${TOKEN}` } }))],
  ];
  const deltas = await collectDeltas(front, completionRequest("pipe/a"));
  expect(foldDeltas(deltas).text).toMatch(/^.{0,3}\[key\]\.$/);
  expect(JSON.stringify(deltas)).not.toContain(TOKEN.slice(3));
  expect(deltas.at(-1)?.delta.case).toBe("error");
});

const ECHOES = [
  TOKEN,
  TOKEN.toUpperCase(),
  Buffer.from(`Bearer ${TOKEN}`).toString("base64"),
  JSON.stringify({ authorization: `Bearer ${TOKEN}` }),
];

test.each(ECHOES)(
  "a status that echoes its token (%s) - not in deltas, in errors, in the log",
  async (echo) => {
    const lines: string[] = [];
    const logger = pino({ level: "trace" }, { write: (line: string) => void lines.push(line) });
    const own = await startLlmPeer(llmConfig(frontYaml(server.port), { TOKEN }), { clock, logger });
    try {
      const refuse = (): never => {
        throw new TurnError(ErrorCode.PERMISSION_DENIED, {
          message: `no: ${echo}`,
          details: { field: echo },
        });
      };
      says = refuse;
      const deltas = await collectDeltas(own, completionRequest("pipe/a"));
      expect(deltas.at(-1)?.delta.case).toBe("error");
      models = refuse;
      clock.advance(60_000);
      const { models: listed } = await own.client.unary("listModels", create(ListModelsRequestSchema), {
        signal: new AbortController().signal,
      });
      expect(listed.map(({ modelId }) => modelId)).toEqual(["pipe/a", "demo"]);
      expect(lines.join()).toContain("could not list its models");
      for (const text of [JSON.stringify(deltas), ...lines]) {
        expect(text.toLowerCase()).not.toContain(TOKEN.slice(4));
        expect(text).not.toContain(echo.slice(12));
      }
    } finally {
      await own.close();
    }
  },
);

test("an error before anything was said has no token, either", async () => {
  says = () => [
    [
      warningDelta(ErrorCode.UPSTREAM_MALFORMED, TOKEN),
      errorDelta(new TurnError(ErrorCode.UPSTREAM_REJECTED, { message: TOKEN, details: { [TOKEN]: TOKEN } })),
    ],
  ];
  const deltas = await collectDeltas(front, completionRequest("pipe/a"));
  expect(JSON.stringify(deltas)).not.toContain(TOKEN.slice(3));
});

test.each([
  ["text beyond ASCII", contentDelta(0, "\u{1F600}".repeat(10_000))],
  ["provider state", state(40_000)],
  [
    "media",
    {
      ...stop,
      delta: {
        case: "media",
        value: {
          $typeName: "turnwire.llm.v1.MediaPart",
          mediaType: "image/png",
          name: "",
          source: { case: "data", value: new Uint8Array(40_000) },
        },
      },
    } as CompletionDelta,
  ],
])("an endless answer of %s ends at the limit in bytes", async (_, delta) => {
  says = function* () {
    for (;;) yield [delta];
  };
  const deltas = await collectDeltas(front, completionRequest("pipe/a"));
  expect(deltas.at(-1)?.delta).toMatchObject({ case: "error", value: { code: ErrorCode.SIZE_LIMIT } });
  const handedOn = deltas.filter(({ delta: { case: kind } }) => kind === delta.delta.case);
  const bytes = handedOn.reduce((sum, each) => sum + toBinary(CompletionDeltaSchema, each).length, 0);
  expect(bytes).toBeLessThanOrEqual(1_000_000);
  expect(bytes).toBeGreaterThan(900_000);
});

test("provider state is not the first token", async () => {
  const left = new AbortController();
  says = async function* () {
    yield [state(10)];
    await clock.sleep(1_000_000, left.signal).catch(() => undefined);
  };
  const waits = clock.sleepBegins(1_000_000);
  const call = collectDeltas(front, completionRequest("pipe/a"));
  await waits;
  clock.advance(5_000);
  expect((await call).at(-1)?.delta).toMatchObject({ value: { code: ErrorCode.UPSTREAM_STALLED } });
  left.abort();
});

const listedFor = async (groups: string[]): Promise<string[]> => {
  const request = create(ListModelsRequestSchema, { caller: { tenantId: "local", userId: "local", groups } });
  const answer = await front.client.unary("listModels", request, { signal: new AbortController().signal });
  return answer.models.map(({ modelId }) => modelId);
};

test("a model that is restricted to nobody is nobody's", async () => {
  models = () => {
    const access = { restricted: true, groups: [] as string[] };
    const staff = { restricted: true, groups: ["staff"] };
    const list = [{ modelId: "none", access }, { modelId: "some", access: staff }, { modelId: "all" }];
    return create(ListModelsResponseSchema, { models: list }).models;
  };
  says = () => [[contentDelta(0, "hi"), stop]];
  expect(await listedFor([])).toEqual(["pipe/all", "demo"]);
  expect(await listedFor(["staff"])).toEqual(["pipe/some", "pipe/all", "demo"]);
  for (const id of ["pipe/none", "pipe/some"])
    await expect(collectDeltas(front, completionRequest(id))).rejects.toMatchObject({
      code: ErrorCode.MODEL_NOT_FOUND,
    });
  expect(foldDeltas(await collectDeltas(front, completionRequest("pipe/all"))).text).toBe("hi");
});

test("while it cannot list its models, none that it did not list is asked for; those of its last list are", async () => {
  const failing = (): never => {
    throw new TurnError(ErrorCode.INTERNAL);
  };
  const listing = models;
  models = failing;
  says = () => [[contentDelta(0, "hi"), stop]];
  await expect(collectDeltas(front, completionRequest("pipe/a"))).rejects.toMatchObject({
    code: ErrorCode.MODEL_NOT_FOUND,
  });
  models = listing;
  clock.advance(60_000);
  expect(foldDeltas(await collectDeltas(front, completionRequest("pipe/a"))).text).toBe("hi");
  models = failing;
  clock.advance(60_000);
  expect(foldDeltas(await collectDeltas(front, completionRequest("pipe/a"))).text).toBe("hi");
  await expect(collectDeltas(front, completionRequest("pipe/b"))).rejects.toMatchObject({
    code: ErrorCode.MODEL_NOT_FOUND,
  });
});
