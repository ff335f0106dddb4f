/** Token counts of OpenAI Responses in our shape. They come once, with the end of the answer. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { UsageSchema } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { objectOf, uint32Of } from "../../json.js";

/** undefined = the server reported none. */
export function usageOf(usage: unknown): MessageInitShape<typeof UsageSchema> | undefined {
  const counts = objectOf(usage);
  const input = uint32Of(counts["input_tokens"]);
  const output = uint32Of(counts["output_tokens"]);
  if (input === undefined && output === undefined) return undefined;
  const inputDetails = objectOf(counts["input_tokens_details"]);
  const outputDetails = objectOf(counts["output_tokens_details"]);
  const { cost } = counts;
  return {
    inputTokens: input ?? 0,
    outputTokens: output ?? 0,
    reasoningTokens: uint32Of(outputDetails["reasoning_tokens"]) ?? 0,
    cacheReadTokens: uint32Of(inputDetails["cached_tokens"]) ?? 0,
    cacheWriteTokens: uint32Of(inputDetails["cache_write_tokens"]) ?? 0,
    ...(typeof cost === "number" &&
      cost > 0 &&
      Number.isFinite(cost) && { costMicros: String(Math.round(cost * 1e6)), currency: "USD" }),
  };
}
