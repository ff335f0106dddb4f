/**
 * Recorded bodies of many providers and bodies from public bug reports: what they mean, however they are cut. Needs the test
 * data folder; without it the suite is skipped and the rules stand in src/llm's own tests.
 */
import { describe, expect, test } from "vitest";
import type { DecoderOptions, StreamDecoder } from "../../src/llm/providers/dialect.js";
import { createDialect, DIALECT_NAMES } from "../../src/llm/providers/dialects.js";
import { DEFAULT_REASONING_TAGS } from "../../src/llm/providers/shared/reasoning-tags.js";
import type { CompletionResult } from "../support/completion-result.js";
import {
  cutAt,
  decodePieces,
  expectSameHoweverCut,
  MAX_BYTES_CUT_EVERYWHERE,
} from "../support/cut-bodies.js";
import { decoderOptions } from "../support/decoder-options.js";
import {
  corpusCases,
  readCases,
  testDataDir,
  type CorpusCase,
  type CorpusExpectation,
} from "../support/test-data.js";

const dir = testDataDir();

/** Our dialects by the names of the test data. */
const DIALECT_OF: Readonly<Record<string, string>> = {
  "openai-chat": "openai-chat",
  "mistral-chat": "openai-chat",
  "openai-responses": "openai-responses",
  "anthropic-messages": "anthropic-messages",
  "gemini-stream": "gemini",
  "gemini-generate": "gemini",
  "ollama-chat": "ollama-chat",
  "cohere-v2-chat": "cohere-v2",
  "bedrock-converse-stream": "bedrock-converse",
};

function dialectFor(api: string): string | undefined {
  const name = DIALECT_OF[api];
  return name !== undefined && DIALECT_NAMES.includes(name) ? name : undefined;
}

const SETTINGS = { baseUrl: "https://upstream.test/v1", quirks: {} };
const dialects = new Map(DIALECT_NAMES.map((name) => [name, createDialect(name, SETTINGS)]));

function decoderOf(api: string, options: Partial<DecoderOptions>): StreamDecoder {
  return dialects.get(dialectFor(api) ?? "")!.createDecoder(decoderOptions(options));
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

function expectMeaning(got: CompletionResult, want: CorpusExpectation): void {
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

const bodies = dir ? corpusCases(dir) : [];

for (const api of Object.keys(DIALECT_OF)) {
  describe.skipIf(!dir || !dialectFor(api))(`recorded bodies - ${api}`, () => {
    for (const body of bodies.filter((each) => each.api === api)) {
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

/** A document has no order of arrival; ours is reasoning first. */
function withoutOrder(want: CorpusExpectation): CorpusExpectation {
  return { ...want, order: undefined };
}

interface BugCase {
  readonly id: string;
  readonly api: string;
  readonly content_type?: string;
  readonly body: string;
  readonly split_at?: readonly number[];
  readonly needs?: string;
  readonly right_result: Omit<CorpusExpectation, "error"> & {
    readonly error: {
      readonly kind: string;
      readonly message?: string;
      readonly code?: number | string;
    } | null;
  };
}

/** Error codes that say what a case's kind says. */
const CODES_OF_KIND: Readonly<Record<string, RegExp>> = {
  truncated: /^UPSTREAM_TRUNCATED$/,
  upstream_error: /^(UPSTREAM_(UNAVAILABLE|REJECTED|AUTH|MALFORMED)|RATE_LIMIT|CONTEXT_TOO_LONG)$/,
};

const bugs = dir ? (readCases(dir, "stream_bugs") as readonly BugCase[]) : [];

describe.skipIf(!dir)("bodies from bug reports", () => {
  for (const bug of bugs.filter(({ api }) => dialectFor(api))) {
    test(bug.id, () => {
      const reasoningTags = bug.needs?.startsWith("think-tag") ? DEFAULT_REASONING_TAGS : [];
      const decoder = (): StreamDecoder =>
        decoderOf(bug.api, { reasoningTags, contentType: bug.content_type ?? "" });
      const body = Buffer.from(bug.body);
      const got = decodePieces(decoder(), cutAt(body, bug.split_at ?? []));
      const { error, ...right } = bug.right_result;
      const isWarning = error?.kind === "malformed_event" || error?.kind === "invalid_tool_arguments";
      expectMeaning(got, {
        ...right,
        // These bodies say "refusal" in a raw word that the table leaves out.
        finish_reason: got.rawFinish === "refusal" ? "refusal" : right.finish_reason,
        error: isWarning ? null : error,
        generated_ids: right.tool_calls.some((call) => call.id === null),
      });
      expect(got.warnings).toEqual(isWarning ? ["UPSTREAM_MALFORMED"] : []);
      if (error && !isWarning) {
        expect(got.error?.code).toMatch(CODES_OF_KIND[error.kind] ?? /^$/);
        expect(got.error?.message).toContain(error.message ?? "");
        if (typeof error.code === "number")
          expect(got.error?.details["upstream_status"]).toBe(String(error.code));
      }
      expectSameHoweverCut(decoder, body, got);
    });
  }
});

/** Where the last word of an openai chat body about its end begins. */
function endOf(body: CorpusCase): number {
  const text = Buffer.from(body.body).toString("latin1");
  const finishAt = text.search(/"finish_reason":\s*"(?!None)\w/);
  return finishAt === -1 ? text.indexOf("[DONE]") : finishAt;
}

describe.skipIf(!dir)("bodies cut off anywhere", () => {
  test("never end in success before the answer's end, never complete a call", () => {
    for (const body of bodies) {
      const { name, api, want } = body;
      if (DIALECT_OF[api] !== "openai-chat" || !body.stream || want.error !== null) continue;
      if (body.body.length >= MAX_BYTES_CUT_EVERYWHERE) continue;
      for (let at = 0; at < endOf(body); at += 7) {
        const got = decodePieces(decoderOf(api, {}), [body.body.subarray(0, at)]);
        expect(got.error?.code, `${name} cut off at ${at}`).toBe("UPSTREAM_TRUNCATED");
        expect(
          got.toolCalls.some((call) => call.complete),
          `${name} cut off at ${at}`,
        ).toBe(false);
        expect(want.text.startsWith(got.text), `${name} cut off at ${at}`).toBe(true);
      }
    }
  });
});

test.skipIf(!dir)("every dialect of the bodies is built", () => {
  const missing = [...new Set(Object.values(DIALECT_OF))].filter((name) => !DIALECT_NAMES.includes(name));
  expect(missing).toEqual([]);
});
