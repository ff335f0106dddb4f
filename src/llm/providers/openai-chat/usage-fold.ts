/** Token counts of the OpenAI chat dialect, folded into one shape. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { UsageSchema } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { objectOf, uint32Of } from "../../json.js";

/**
 * The newest counts of one answer. Servers repeat running totals, so the last value of each member wins and nothing is
 * ever summed.
 */
export class UsageFold {
  #input: number | undefined;
  #completion: number | undefined;
  #total: number | undefined;
  #reasoning: number | undefined;
  #cacheRead: number | undefined;
  #cacheWrite: number | undefined;
  #costUsd: number | undefined;

  /** Takes a `usage` object. Anything else is ignored. */
  push(usage: unknown): void {
    const counts = objectOf(usage);
    const promptDetails = objectOf(counts["prompt_tokens_details"]);
    const completionDetails = objectOf(counts["completion_tokens_details"]);
    this.#input = uint32Of(counts["prompt_tokens"] ?? counts["input_tokens"]) ?? this.#input;
    this.#completion = uint32Of(counts["completion_tokens"] ?? counts["output_tokens"]) ?? this.#completion;
    this.#total = uint32Of(counts["total_tokens"]) ?? this.#total;
    this.#reasoning =
      uint32Of(completionDetails["reasoning_tokens"]) ??
      uint32Of(counts["reasoning_tokens"]) ??
      this.#reasoning;
    this.#cacheRead =
      uint32Of(promptDetails["cached_tokens"]) ??
      uint32Of(counts["prompt_cache_hit_tokens"]) ??
      uint32Of(counts["cached_tokens"]) ??
      uint32Of(counts["cache_read_input_tokens"]) ??
      this.#cacheRead;
    this.#cacheWrite =
      uint32Of(promptDetails["cache_write_tokens"]) ??
      uint32Of(promptDetails["cache_creation_tokens"]) ??
      uint32Of(counts["cache_creation_input_tokens"]) ??
      this.#cacheWrite;
    const cost = counts["cost"];
    if (typeof cost === "number" && cost >= 0 && Number.isFinite(cost)) this.#costUsd = cost;
  }

  /** The usage so far; undefined = the server reported none. */
  result(): MessageInitShape<typeof UsageSchema> | undefined {
    if (this.#input === undefined && this.#completion === undefined) return undefined;
    const input = this.#input ?? 0;
    const completion = this.#completion ?? 0;
    const reasoning = this.#reasoning ?? 0;
    // Some servers leave reasoning out of the completion; the total tells.
    const outside = reasoning > 0 && this.#total === input + completion + reasoning;
    return {
      inputTokens: input,
      outputTokens: outside ? completion + reasoning : completion,
      reasoningTokens: reasoning,
      cacheReadTokens: this.#cacheRead ?? 0,
      cacheWriteTokens: this.#cacheWrite ?? 0,
      costMicros: this.#costUsd === undefined ? "0" : String(Math.round(this.#costUsd * 1e6)),
      currency: this.#costUsd === undefined ? "" : "USD",
    };
  }
}
