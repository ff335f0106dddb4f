/** Bodies from public bug reports: what they mean, however they are cut. Needs the test data folder. */
import { describe, expect, test } from "vitest";
import type { StreamDecoder } from "../../src/llm/providers/dialect.js";
import { DEFAULT_REASONING_TAGS } from "../../src/llm/providers/shared/reasoning-tags.js";
import { decoderOf, expectMeaning, type CorpusApi } from "../support/corpus-meaning.js";
import { cutAt, decodePieces, expectSameHoweverCut } from "../support/cut-bodies.js";
import { readCases, testDataDir, type CorpusExpectation } from "../support/test-data.js";

const dir = testDataDir();

interface BugCase {
  readonly id: string;
  readonly api: CorpusApi;
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
  for (const bug of bugs) {
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

test.skipIf(!dir)("the table is whole", () => {
  expect(bugs.length).toBeGreaterThanOrEqual(55);
});
