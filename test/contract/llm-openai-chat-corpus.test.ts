/**
 * Recorded bodies of OpenAI-compatible servers and bodies from public bug reports: what they mean, however they are cut.
 * Needs the test data folder; without it the suite is skipped and the rules stand in src/llm's own tests.
 */
import { describe, expect, test } from "vitest";
import type { DecoderOptions } from "../../src/llm/providers/dialect.js";
import { createOpenAiChatDecoder } from "../../src/llm/providers/openai-chat/dialect.js";
import { DEFAULT_REASONING_TAGS } from "../../src/llm/providers/shared/reasoning-tags.js";
import { foldDeltas, type CompletionResult } from "../support/completion-result.js";
import { decoderOptions } from "../support/decoder-options.js";
import { corpusCases, readCases, testDataDir, type CorpusExpectation } from "../support/test-data.js";

const dir = testDataDir();
const MAX_BYTES_CUT_EVERYWHERE = 8 * 1024;
const RANDOM_CUTTINGS = 8;

/** Decodes a body that arrives in these pieces. */
function decode(pieces: readonly Uint8Array[], options: Partial<DecoderOptions> = {}): CompletionResult {
  const decoder = createOpenAiChatDecoder(decoderOptions(options));
  const deltas = pieces.flatMap((piece) => decoder.push(piece));
  deltas.push(...decoder.end());
  return foldDeltas(deltas);
}

function cutAt(body: Uint8Array, offsets: readonly number[]): Uint8Array[] {
  const edges = [0, ...offsets, body.length];
  return edges.slice(1).map((edge, at) => body.subarray(edges[at], edge));
}

/** A small seeded generator: the same cuts in every run. */
function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

function randomCut(body: Uint8Array, random: () => number, maxPiece: number): Uint8Array[] {
  const offsets: number[] = [];
  for (let at = 0; at < body.length;) {
    at += 1 + Math.floor(random() * maxPiece);
    if (at < body.length) offsets.push(at);
  }
  return cutAt(body, offsets);
}

function expectSameHoweverCut(
  body: Uint8Array,
  whole: CompletionResult,
  options: Partial<DecoderOptions> = {},
): void {
  if (body.length < MAX_BYTES_CUT_EVERYWHERE) {
    const wanted = JSON.stringify(whole);
    for (let at = 1; at < body.length; at++) {
      const got = decode(cutAt(body, [at]), options);
      if (JSON.stringify(got) !== wanted) expect(got, `cut at byte ${at}`).toEqual(whole);
    }
    return;
  }
  const random = seeded(body.length);
  for (let round = 0; round < RANDOM_CUTTINGS; round++) {
    const maxPiece = [7, 61, 1021, 5000][round % 4] ?? 7;
    expect(decode(randomCut(body, random, maxPiece), options), `cutting ${round}`).toEqual(whole);
  }
}

function parsed(json: string): unknown {
  return JSON.parse(json) as unknown;
}

function expectMeaning(got: CompletionResult, want: CorpusExpectation): void {
  expect(got.text).toBe(want.text);
  expect(got.reasoning).toBe(want.reasoning);
  if (want.order) expect(got.order).toEqual(want.order);
  expect(got.toolCalls.filter((call) => call.complete).map((call) => [call.name, parsed(call.args)])).toEqual(
    want.tool_calls.map((call) => [call.name, parsed(call.arguments_json)]),
  );
  if (want.generated_ids !== true) {
    expect(got.toolCalls.filter((call) => call.complete).map((call) => call.id)).toEqual(
      want.tool_calls.map((call) => call.id),
    );
  }
  expect(got.error === undefined).toBe(want.error === null);
  expect(got.error ? "error" : got.finish).toBe(want.finish_reason);
  if (want.finish_reason_raw && !want.error) expect(got.rawFinish).toBe(want.finish_reason_raw);
  if (want.sources && want.sources.length > 0)
    expect(got.sources).toEqual(want.sources.map((source) => source.url));
  const names = {
    input: "input",
    output: "output",
    reasoning: "reasoning",
    cached: "cached",
    cache_write: "cacheWrite",
  } as const;
  for (const [name, own] of Object.entries(names)) {
    const value = want.usage?.[name];
    if (typeof value === "number") expect(got.usage?.[own], `usage ${name}`).toBe(value);
  }
}

describe.skipIf(!dir)("openai chat - recorded bodies", () => {
  for (const { name, stream, body, want } of dir ? corpusCases(dir, "openai-chat") : []) {
    test(name, () => {
      const whole = decode([body]);
      // A document has no order of arrival; ours is reasoning first.
      expectMeaning(whole, stream ? want : { ...want, order: undefined });
      expect(whole.warnings).toEqual([]);
      expectSameHoweverCut(body, whole);
    });
  }
});

interface BugCase {
  readonly id: string;
  readonly api: string;
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

describe.skipIf(!dir)("openai chat - bodies from bug reports", () => {
  const cases = dir
    ? (readCases(dir, "stream_bugs") as BugCase[]).filter(({ api }) => api === "openai-chat")
    : [];
  for (const bug of cases) {
    test(bug.id, () => {
      const options = { reasoningTags: bug.needs?.startsWith("think-tag") ? DEFAULT_REASONING_TAGS : [] };
      const body = Buffer.from(bug.body);
      const got = decode(cutAt(body, bug.split_at ?? []), options);
      const { error, ...right } = bug.right_result;
      const isWarning = error?.kind === "malformed_event" || error?.kind === "invalid_tool_arguments";
      expectMeaning(got, {
        ...right,
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
      expectSameHoweverCut(body, got, options);
    });
  }
});

describe.skipIf(!dir)("openai chat - bodies cut off anywhere", () => {
  test("never end in success before the answer's end, never complete a call", () => {
    for (const { name, stream, body, want } of dir ? corpusCases(dir, "openai-chat") : []) {
      if (!stream || body.length >= MAX_BYTES_CUT_EVERYWHERE || want.error !== null) continue;
      const text = Buffer.from(body).toString("latin1");
      const finishAt = text.search(/"finish_reason":\s*"(?!None)\w/);
      const last = finishAt === -1 ? text.indexOf("[DONE]") : finishAt;
      for (let at = 0; at < last; at += 7) {
        const got = decode([body.subarray(0, at)]);
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
