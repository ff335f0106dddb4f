/**
 * Recorded bodies of all providers but OpenAI's kin (llm-corpus-openai.test.ts): what they mean, however they are cut. Needs the
 * test data folder; without it the suite is skipped and the rules stand in src/llm's own tests.
 */
import { expect, test } from "vitest";
import { bodiesOf, DIALECT_OF, testRecordedBodies, type CorpusApi } from "../support/corpus-meaning.js";
import { testDataDir } from "../support/test-data.js";

testRecordedBodies(
  ...(["anthropic-messages", "gemini-stream", "gemini-generate"] as const),
  ...(["ollama-chat", "cohere-v2-chat", "bedrock-converse-stream"] as const),
);

test.skipIf(!testDataDir())("the collection is whole", () => {
  const bodies = (Object.keys(DIALECT_OF) as CorpusApi[]).flatMap(bodiesOf);
  expect(bodies.filter(({ stream }) => stream).length).toBeGreaterThanOrEqual(181);
  expect(bodies.filter(({ stream }) => !stream).length).toBeGreaterThanOrEqual(29);
});
