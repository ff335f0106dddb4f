/** Embeddings as OpenAI and its kin give them: texts in, one vector each. */
import { ErrorCode } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../../lib/errors.js";
import { objectOf, uint32Of, type Json } from "../../json.js";
import type { Dialect } from "../dialect.js";

/** One request takes this many texts. */
const MAX_INPUTS = 2_048;

export const openAiEmbedding: NonNullable<Dialect["embedding"]> = {
  maxInputs: MAX_INPUTS,
  request: (inputs, model) => ({
    path: "/embeddings",
    headers: {},
    body: { model: model.upstreamModel, input: [...inputs], encoding_format: "float" },
    dropped: [],
  }),
  read(answer) {
    const { data } = answer;
    if (!Array.isArray(data)) throw unreadable();
    const items = (data as unknown[]).map((item) => objectOf(item));
    const sorted = items.map((item, at) => ({ item, at: uint32Of(item["index"]) ?? at }));
    sorted.sort((left, right) => left.at - right.at);
    const usage = objectOf(answer["usage"]);
    return {
      vectors: sorted.map(({ item }) => vectorOf(item)),
      inputTokens: uint32Of(usage["prompt_tokens"]) ?? uint32Of(usage["total_tokens"]) ?? 0,
    };
  },
};

/** Some servers answer in base64 whatever they were asked for: little-endian floats. */
function vectorOf(item: Json): readonly number[] {
  const { embedding } = item;
  if (Array.isArray(embedding) && (embedding as unknown[]).every((value) => typeof value === "number"))
    return embedding as number[];
  if (typeof embedding !== "string") throw unreadable();
  const bytes = Buffer.from(embedding, "base64");
  return Array.from({ length: Math.floor(bytes.length / 4) }, (_, at) => bytes.readFloatLE(at * 4));
}

function unreadable(): TurnError {
  return new TurnError(ErrorCode.UPSTREAM_MALFORMED, {
    message: "the model provider's answer holds no embeddings: check that the model embeds",
  });
}
