/** What a list of deltas adds up to, in the words of the test data. */
import type { CompletionDelta } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { FinishReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import { errorCodeName } from "../../src/lib/errors.js";

export interface CompletionResult {
  text: string;
  reasoning: string;
  /** Block kinds in order of their index. */
  order: string[];
  toolCalls: { id: string; name: string; args: string; complete: boolean; invalid: boolean }[];
  /** "stop", "length", ...; undefined = no finish delta. */
  finish: string | undefined;
  rawFinish: string | undefined;
  usage: { input: number; output: number; reasoning: number; cached: number; cacheWrite: number } | undefined;
  sources: string[];
  error: { code: string; message: string; details: Record<string, string>; retryable: boolean } | undefined;
  warnings: string[];
  refusal: string;
  reasoningOpen: boolean;
}

const FINISH_NAMES: Readonly<Record<FinishReason, string>> = {
  [FinishReason.UNSPECIFIED]: "unspecified",
  [FinishReason.STOP]: "stop",
  [FinishReason.LENGTH]: "length",
  [FinishReason.TOOL_CALLS]: "tool-calls",
  [FinishReason.CONTENT_FILTER]: "content-filter",
  [FinishReason.REFUSAL]: "refusal",
  [FinishReason.ERROR]: "error",
  [FinishReason.CANCELLED]: "cancelled",
  [FinishReason.OTHER]: "other",
};

/** Folds deltas; asserts nothing. */
export function foldDeltas(deltas: Iterable<CompletionDelta>): CompletionResult {
  const result: CompletionResult = {
    text: "",
    reasoning: "",
    order: [],
    toolCalls: [],
    finish: undefined,
    rawFinish: undefined,
    usage: undefined,
    sources: [],
    error: undefined,
    warnings: [],
    refusal: "",
    reasoningOpen: false,
  };
  const callAt = new Map<number, CompletionResult["toolCalls"][number]>();
  const block = (index: number, kind: string): void => void (result.order[index] = kind);
  for (const { delta } of deltas) {
    switch (delta.case) {
      case "content":
        result.text += delta.value.text;
        block(delta.value.blockIndex, "text");
        break;
      case "reasoning":
        result.reasoning += delta.value.text;
        block(delta.value.blockIndex, "reasoning");
        break;
      case "toolCall": {
        let call = callAt.get(delta.value.blockIndex);
        if (!call) {
          call = { id: delta.value.callId, name: "", args: "", complete: false, invalid: false };
          callAt.set(delta.value.blockIndex, call);
          result.toolCalls.push(call);
        }
        if (delta.value.name !== "") call.name = delta.value.name;
        call.args += delta.value.argumentsFragment;
        call.complete ||= delta.value.complete;
        call.invalid ||= delta.value.argumentsInvalid;
        block(delta.value.blockIndex, "tool_call");
        break;
      }
      case "finish":
        result.finish = FINISH_NAMES[delta.value.reason];
        result.rawFinish = delta.value.rawReason;
        result.reasoningOpen = delta.value.reasoningOpen;
        break;
      case "usage": {
        const usage = delta.value.usage;
        if (!usage) break;
        result.usage = {
          input: usage.inputTokens,
          output: usage.outputTokens,
          reasoning: usage.reasoningTokens,
          cached: usage.cacheReadTokens,
          cacheWrite: usage.cacheWriteTokens,
        };
        break;
      }
      case "citation":
        result.sources.push(delta.value.document?.url ?? "");
        break;
      case "error":
        result.error = {
          code: errorCodeName(delta.value.code),
          message: delta.value.message,
          details: delta.value.details,
          retryable: delta.value.retryable,
        };
        break;
      case "warning":
        result.warnings.push(errorCodeName(delta.value.code));
        break;
      case "refusal":
        result.refusal += delta.value;
        break;
      default:
        break;
    }
  }
  return result;
}
