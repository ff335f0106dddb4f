/** What providers call the end of an answer, for all dialects. */
import { FinishReason } from "../../gen/turnwire/packet/v1/common_pb.js";

const BY_RAW_REASON: ReadonlyMap<string, FinishReason> = new Map([
  ...named(
    FinishReason.STOP,
    "stop",
    "end_turn",
    "stop_sequence",
    "complete",
    "completed",
    "pause_turn",
    "compaction",
    ...["eos", "eos_token", "stop_token", "stop_str", "end", "done"],
  ),
  ...named(
    FinishReason.LENGTH,
    ...[
      "length",
      "max_tokens",
      "max_output_tokens",
      "model_context_window_exceeded",
      "max_completion_tokens",
      "max_length",
      "model_length",
      "token_limit",
    ],
  ),
  ...named(FinishReason.TOOL_CALLS, "tool_calls", "tool_call", "tool-calls", "function_call", "tool_use"),
  ...named(
    FinishReason.CONTENT_FILTER,
    ...[
      "content_filter",
      "content-filter",
      "safety",
      "recitation",
      "blocklist",
      "prohibited_content",
      "spii",
    ],
    ...["content_filtered", "content-filtered", "guardrail_intervened", "sensitive"],
  ),
  ...named(FinishReason.REFUSAL, "refusal"),
  ...named(
    FinishReason.ERROR,
    "error",
    "failed",
    ...["malformed_function_call", "function_call_filter", "abort", "aborted", "cancelled", "canceled"],
    "insufficient_system_resource",
    "network_error",
  ),
]);

function named(reason: FinishReason, ...raw: string[]): [string, FinishReason][] {
  return raw.map((name) => [name, reason]);
}

/** Words that stand where there is no reason yet. */
const NO_END = new Set(["", "none", "null", "undefined", "not_finished", "finish_reason_unspecified"]);

/**
 * The reason behind a provider's word for it, of which only what stands before a colon counts. undefined = this is no end mark
 * (absent, empty, "None"); OTHER = a word nobody knows, which ends an answer only if nothing follows it.
 */
export function finishReasonOf(raw: unknown): FinishReason | undefined {
  if (typeof raw !== "string") return undefined;
  const known = BY_RAW_REASON.get(raw);
  if (known !== undefined) return known;
  const [word = ""] = raw.toLowerCase().split(":");
  return NO_END.has(word.trim()) ? undefined : (BY_RAW_REASON.get(word.trim()) ?? FinishReason.OTHER);
}
