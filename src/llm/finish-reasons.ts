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
    "eos",
    "done",
  ),
  ...named(
    FinishReason.LENGTH,
    ...[
      "length",
      "max_tokens",
      "max_output_tokens",
      "model_context_window_exceeded",
      "max_completion_tokens",
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
    ...["guardrail_intervened", "sensitive"],
  ),
  ...named(FinishReason.REFUSAL, "refusal"),
  ...named(
    FinishReason.ERROR,
    "error",
    "failed",
    "malformed_function_call",
    "insufficient_system_resource",
    "network_error",
  ),
]);

function named(reason: FinishReason, ...raw: string[]): [string, FinishReason][] {
  return raw.map((name) => [name, reason]);
}

/**
 * The reason behind a provider's word for it. undefined = this is no end mark (absent, empty, "None"); OTHER = a word
 * nobody knows, which ends an answer only if nothing follows it.
 */
export function finishReasonOf(raw: unknown): FinishReason | undefined {
  if (typeof raw !== "string" || raw === "" || raw === "None" || raw === "null") return undefined;
  return BY_RAW_REASON.get(raw) ?? BY_RAW_REASON.get(raw.toLowerCase()) ?? FinishReason.OTHER;
}
