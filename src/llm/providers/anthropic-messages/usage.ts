/** Token counts of Anthropic Messages, folded into one shape. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { UsageSchema } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { objectOf, uint32Of, type Json } from "../../json.js";

/**
 * The newest counts of one answer: the server repeats running totals, so the last value of each member wins. What was
 * spent on compacting the conversation stands beside the totals and is added.
 */
export class UsageFold {
  #input: number | undefined;
  #output: number | undefined;
  #cacheRead: number | undefined;
  #cacheWrite: number | undefined;
  #thinking: number | undefined;
  #compaction = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };

  /** Takes a `usage` object. Anything else is ignored. */
  push(usage: unknown): void {
    const counts = objectOf(usage);
    this.#input = uint32Of(counts["input_tokens"]) ?? this.#input;
    this.#output = uint32Of(counts["output_tokens"]) ?? this.#output;
    this.#cacheRead = uint32Of(counts["cache_read_input_tokens"]) ?? this.#cacheRead;
    this.#cacheWrite = uint32Of(counts["cache_creation_input_tokens"]) ?? this.#cacheWrite;
    const details = objectOf(counts["output_tokens_details"]);
    this.#thinking = uint32Of(details["thinking_tokens"]) ?? this.#thinking;
    const iterations = counts["iterations"];
    if (Array.isArray(iterations)) this.#compaction = compactionOf(iterations as unknown[]);
  }

  /** The usage so far; undefined = the server reported none. */
  result(): MessageInitShape<typeof UsageSchema> | undefined {
    if (this.#input === undefined && this.#output === undefined) return undefined;
    const cacheReadTokens = (this.#cacheRead ?? 0) + this.#compaction.cacheRead;
    const cacheWriteTokens = (this.#cacheWrite ?? 0) + this.#compaction.cacheWrite;
    return {
      inputTokens: (this.#input ?? 0) + this.#compaction.input + cacheReadTokens + cacheWriteTokens,
      outputTokens: (this.#output ?? 0) + this.#compaction.output,
      reasoningTokens: this.#thinking ?? 0,
      cacheReadTokens,
      cacheWriteTokens,
    };
  }
}

function compactionOf(iterations: readonly unknown[]) {
  const sum = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
  for (const item of iterations) {
    const step: Json = objectOf(item);
    if (step["type"] !== "compaction") continue;
    sum.input += uint32Of(step["input_tokens"]) ?? 0;
    sum.output += uint32Of(step["output_tokens"]) ?? 0;
    sum.cacheRead += uint32Of(step["cache_read_input_tokens"]) ?? 0;
    sum.cacheWrite += uint32Of(step["cache_creation_input_tokens"]) ?? 0;
  }
  return sum;
}
