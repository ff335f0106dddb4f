import { describe, expect, test } from "vitest";
import { modelOf } from "../../config.js";
import { openAiEmbedding } from "./openai-embedding.js";

describe("embeddings of OpenAI's kin", () => {
  test("texts in, vectors in the order of the texts out", () => {
    const model = { ...modelOf("m", "p"), upstreamModel: "text-embedding-3-small" };
    expect(openAiEmbedding.request(["a", "b"], model)).toMatchObject({
      path: "/embeddings",
      body: { model: "text-embedding-3-small", input: ["a", "b"], encoding_format: "float" },
    });
    const data = [
      { index: 1, embedding: [0, 1] },
      { index: 0, embedding: [1, 0] },
    ];
    const answer = openAiEmbedding.read({ data, usage: { prompt_tokens: 3 } });
    expect(answer).toEqual({
      vectors: [
        [1, 0],
        [0, 1],
      ],
      inputTokens: 3,
    });
  });

  test("vectors in base64 are floats", () => {
    const embedding = Buffer.from(new Float32Array([0.5, -2]).buffer).toString("base64");
    expect(openAiEmbedding.read({ data: [{ embedding }] }).vectors).toEqual([[0.5, -2]]);
  });

  test.each([{}, { data: [{}] }, { data: [{ embedding: ["x"] }] }])(
    "an answer without vectors is unreadable: %j",
    (answer) => {
      expect(() => openAiEmbedding.read(answer)).toThrow("holds no embeddings");
    },
  );
});
