/** The recorded bodies of the test data through our decoders: what they mean, and that cutting them changes nothing. */
import { describe, expect, test } from "vitest";
import type { DecoderOptions, StreamDecoder } from "../../src/llm/providers/dialect.js";
import { createDialect } from "../../src/llm/providers/dialects.js";
import type { CompletionResult } from "./completion-result.js";
import { decodePieces, expectSameHoweverCut } from "./cut-bodies.js";
import { decoderOptions } from "./decoder-options.js";
import { corpusCases, testDataDir, type CorpusCase, type CorpusExpectation } from "./test-data.js";

/** Our dialects by the names of the test data. */
export const DIALECT_OF = {
  "openai-chat": "openai-chat",
  "mistral-chat": "openai-chat",
  "openai-responses": "openai-responses",
  "anthropic-messages": "anthropic-messages",
  "gemini-stream": "gemini",
  "gemini-generate": "gemini",
  "ollama-chat": "ollama-chat",
  "cohere-v2-chat": "cohere-v2",
  "bedrock-converse-stream": "bedrock-converse",
} as const;

export type CorpusApi = keyof typeof DIALECT_OF;

const SETTINGS = { baseUrl: "https://upstream.test/v1", quirks: {} };
const dialects = new Map(Object.values(DIALECT_OF).map((name) => [name, createDialect(name, SETTINGS)]));

/** A decoder for one response. */
export function decoderOf(api: CorpusApi, options: Partial<DecoderOptions>): StreamDecoder {
  return dialects.get(DIALECT_OF[api])!.createDecoder(decoderOptions(options));
}

/** The bodies of an API; [] without the test data folder. */
export function bodiesOf(api: CorpusApi): CorpusCase[] {
  const dir = testDataDir();
  return dir ? corpusCases(dir).filter((body) => body.api === api) : [];
}

/** Declares a test per body. */
export function testRecordedBodies(...apis: readonly CorpusApi[]): void {
  for (const api of apis) {
    describe.skipIf(!testDataDir())(`recorded bodies - ${api}`, () => {
      for (const body of bodiesOf(api)) {
        test(body.name, () => {
          const decoder = (): StreamDecoder => decoderOf(api, { contentType: body.contentType });
          const whole = decodePieces(decoder(), [body.body]);
          expectMeaning(whole, body.stream ? body.want : withoutOrder(body.want));
          expect(whole.warnings).toEqual([]);
          expectSameHoweverCut(decoder, body.body, whole);
        });
      }
    });
  }
}

/** A document has no order of arrival; ours is reasoning first. */
function withoutOrder(want: CorpusExpectation): CorpusExpectation {
  return { ...want, order: undefined };
}

function parsed(json: string): unknown {
  return JSON.parse(json) as unknown;
}

const USAGE_NAMES = [
  ...(["input", "output", "reasoning", "cached"] as const).map((name) => [name, name] as const),
  ["cache_write", "cacheWrite"],
] as const;

/** Blocks that the fold knows. */
const BLOCK_KINDS = new Set(["text", "reasoning", "tool_call"]);

/** One peer calls a search that the server ran a tool call. */
function blocksOf(order: readonly string[], want: CorpusExpectation): string[] {
  const isServers = want.tool_calls.length === 0 && (want.server_tool_calls ?? []).length > 0;
  return order.filter((kind) => BLOCK_KINDS.has(kind) && !(isServers && kind === "tool_call"));
}

/** Compares all that the expectation names. */
export function expectMeaning(got: CompletionResult, want: CorpusExpectation): void {
  expect(got.text).toBe(want.text);
  expect(got.reasoning).toBe(want.reasoning);
  if (want.order) expect(got.order).toEqual(blocksOf(want.order, want));
  expectCalls(got, want);
  expect(got.error === undefined).toBe(want.error === null);
  expect(got.error ? "error" : got.finish).toBe(finishOf(want));
  const wireSaysStop = got.rawFinish === "stop" && want.finish_reason_raw === "tool_calls"; // Ollama's own word
  if (want.finish_reason_raw && !want.error && !wireSaysStop)
    expect(got.rawFinish).toBe(want.finish_reason_raw);
  if (want.sources && want.sources.length > 0)
    expectSources(got, want.sources, (want.server_tool_calls ?? []).length > 0);
  for (const [name, own] of USAGE_NAMES) {
    const value = want.usage?.[name];
    if (typeof value === "number") expect(got.usage?.[own], `usage ${name}`).toBe(value);
  }
}

/** Peers repeat a source, and list all that a server's search found; ours are those that the answer cites. Files have no address. */
function expectSources(
  got: CompletionResult,
  want: NonNullable<CorpusExpectation["sources"]>,
  searched: boolean,
): void {
  const known = [
    ...new Set(want.map((source) => (typeof source === "string" ? source : (source.url ?? "")))),
  ];
  const cited = [...new Set(got.sources)];
  if (searched) expect(known).toEqual(expect.arrayContaining(cited));
  else expect(cited).toEqual(known);
}

function expectCalls(got: CompletionResult, want: CorpusExpectation): void {
  const complete = got.toolCalls.filter((call) => call.complete);
  expect(complete.map((call) => [call.name, parsed(call.args)])).toEqual(
    want.tool_calls.map((call) => [call.name, parsed(call.arguments_json)]),
  );
  if (want.generated_ids !== true)
    expect(complete.map((call) => call.id)).toEqual(want.tool_calls.map((call) => call.id));
}

/** A refusal is a reason of its own with us. */
function finishOf(want: CorpusExpectation): string | null {
  return want.finish_reason === "content-filter" && want.finish_reason_raw === "refusal"
    ? "refusal"
    : want.finish_reason;
}
