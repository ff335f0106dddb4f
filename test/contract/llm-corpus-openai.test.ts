/**
 * Recorded bodies of OpenAI and its kin: what they mean, however they are cut, and where they are cut off. Needs the test data
 * folder; without it the suite is skipped and the rules stand in src/llm's own tests.
 */
import { describe, expect, test } from "vitest";
import { bodiesOf, decoderOf, testRecordedBodies } from "../support/corpus-meaning.js";
import { decodePieces, MAX_BYTES_CUT_EVERYWHERE } from "../support/cut-bodies.js";
import { testDataDir, type CorpusCase } from "../support/test-data.js";

testRecordedBodies("openai-chat", "mistral-chat", "openai-responses");

/** Where the last word of an openai chat body about its end begins. */
function endOf(body: CorpusCase): number {
  const text = Buffer.from(body.body).toString("latin1");
  const finishAt = text.search(/"finish_reason":\s*"(?!None)\w/);
  return finishAt === -1 ? text.indexOf("[DONE]") : finishAt;
}

describe.skipIf(!testDataDir())("bodies cut off anywhere", () => {
  test("never end in success before the answer's end, never complete a call", () => {
    for (const body of [...bodiesOf("openai-chat"), ...bodiesOf("mistral-chat")]) {
      const { name, want } = body;
      if (!body.stream || want.error !== null) continue;
      if (body.body.length >= MAX_BYTES_CUT_EVERYWHERE) continue;
      for (let at = 0; at < endOf(body); at += 7) {
        const got = decodePieces(decoderOf("openai-chat", {}), [body.body.subarray(0, at)]);
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
