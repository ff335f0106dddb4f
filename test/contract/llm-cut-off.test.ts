/**
 * Recorded streams of Anthropic, Responses, Gemini, Ollama, Cohere and Bedrock that break off: no success before the server's own word for the end,
 * what came is kept, no call is complete. Needs the test data folder.
 */
import { describe, expect, test } from "vitest";
import { createDialect } from "../../src/llm/providers/dialects.js";
import { decodePieces } from "../support/cut-bodies.js";
import { decoderOptions } from "../support/decoder-options.js";
import { corpusCases, testDataDir } from "../support/test-data.js";

const dir = testDataDir();

/** Dialect, and the word with which its servers say how an answer ended, by the names of the test data. */
const END_WORDS: Readonly<Record<string, readonly [dialect: string, endWord: string]>> = {
  "anthropic-messages": ["anthropic-messages", '"stop_reason":"'],
  "openai-responses": ["openai-responses", '"response.completed"'],
  "gemini-stream": ["gemini", '"finishReason"'],
  "ollama-chat": ["ollama-chat", '"done":true'],
  "cohere-v2-chat": ["cohere-v2", "message-end"],
  "bedrock-converse-stream": ["bedrock-converse", "messageStop"],
};

/** Places at which a body is cut off; fewer in long ones. */
const CUTS = 150;
const MAX_DECODED_BYTES = 1024 * 1024;

describe.skipIf(!dir)("bodies cut off anywhere", () => {
  for (const [api, [dialect, endWord]] of Object.entries(END_WORDS)) {
    const bodies = dir ? corpusCases(dir).filter((body) => body.api === api && body.stream) : [];
    test(`${api} - ends in an error that keeps what came`, () => {
      for (const { name, body, want, contentType } of bodies) {
        const settings = { baseUrl: "https://upstream.test", quirks: {} };
        const found = Buffer.from(body).toString("latin1").indexOf(endWord);
        const end = found === -1 ? body.length : found;
        const cuts = Math.min(CUTS, Math.ceil(MAX_DECODED_BYTES / body.length));
        for (let cut = 0; cut < cuts; cut++) {
          const at = Math.floor((cut * end) / cuts);
          const decoder = createDialect(dialect, settings).createDecoder(decoderOptions({ contentType }));
          const got = decodePieces(decoder, [body.subarray(0, at)]);
          const where = `${name} cut off at ${at}`;
          expect(got.error?.code, where).toMatch(/^UPSTREAM_(TRUNCATED|UNAVAILABLE|REJECTED)$/);
          expect(got.finish, where).toBeUndefined();
          // Responses says itself which calls are whole.
          const isWhole = (call: { readonly complete: boolean }) =>
            call.complete && api !== "openai-responses";
          expect(
            got.toolCalls.filter((call) => isWhole(call) || (call.invalid && !call.complete)),
            where,
          ).toEqual([]);
          expect(want.text.startsWith(got.text), where).toBe(true);
          expect(want.reasoning.startsWith(got.reasoning), where).toBe(true);
        }
      }
    });
  }
});
