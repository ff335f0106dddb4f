/** How a turn or lane ended, in words: what happened and what a person can do about it. */
import {
  ErrorCode,
  FinishReason,
  StopReason,
  TurnOutcome,
  type TurnError,
} from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { EndView, Progress } from "./view-types.js";

/** Where something stands that has this outcome. */
export function progressOf(outcome: TurnOutcome | undefined): Progress {
  switch (outcome) {
    case undefined:
    case TurnOutcome.UNSPECIFIED:
      return "running";
    case TurnOutcome.COMPLETED:
      return "completed";
    case TurnOutcome.STOPPED:
      return "stopped";
    case TurnOutcome.INTERRUPTED:
      return "interrupted";
    default:
      return "error";
  }
}

/** Stops after which the same request would not fare better, or is not wanted. */
const FINAL_REASONS: ReadonlySet<StopReason> = new Set([
  StopReason.BUDGET,
  StopReason.REPLACED,
  StopReason.REVOKED,
  StopReason.ADMIN,
]);

/** Errors that belong to one model: another may do better. */
const ERRORS_OF_MODELS: ReadonlySet<ErrorCode> = new Set([
  ErrorCode.RATE_LIMIT,
  ErrorCode.OVERLOADED,
  ErrorCode.CONTEXT_TOO_LONG,
  ErrorCode.MODEL_NOT_FOUND,
  ErrorCode.MODEL_REFUSAL,
  ErrorCode.UPSTREAM_AUTH,
  ErrorCode.UPSTREAM_REJECTED,
  ErrorCode.UPSTREAM_STALLED,
  ErrorCode.UPSTREAM_TRUNCATED,
  ErrorCode.UPSTREAM_UNAVAILABLE,
]);

/** The end in words; undefined while it runs and when it completed with nothing to add. */
export function endView(
  outcome: TurnOutcome | undefined,
  reason: StopReason,
  error: TurnError | undefined,
): EndView | undefined {
  const progress = progressOf(outcome);
  if (progress === "running" || progress === "completed") return undefined;
  const { text, advice } =
    progress === "error" ? errorWords(error) : progress === "stopped" ? stopWords(reason) : INTERRUPTED;
  return {
    progress,
    text,
    advice,
    retryable: error?.retryable ?? (progress !== "error" && !FINAL_REASONS.has(reason)),
    retryAfterMs: error?.retryAfterMs ?? 0,
    isForOtherModel: error !== undefined && ERRORS_OF_MODELS.has(error.code),
  };
}

/** A note under an answer that its model did not finish by itself; empty = none needed. */
export function finishNote(reason: FinishReason): string {
  switch (reason) {
    case FinishReason.LENGTH:
      return "The answer was cut at the model's length limit. Ask it to continue.";
    case FinishReason.CONTENT_FILTER:
      return "The model provider's content filter cut the answer off.";
    case FinishReason.REFUSAL:
      return "The model declined to answer.";
    default:
      return "";
  }
}

/** An error in a sentence. */
export function errorText(error: TurnError | undefined): string {
  return sentence(error?.message || "something went wrong");
}

interface Words {
  readonly text: string;
  readonly advice: string;
}

const INTERRUPTED: Words = {
  text: "The answer was interrupted: the process that wrote it was lost.",
  advice: "What had arrived is kept. Ask again to get a whole answer.",
};

function stopWords(reason: StopReason): Words {
  switch (reason) {
    case StopReason.UNSPECIFIED:
    case StopReason.USER_CANCELLED:
      return { text: "Stopped.", advice: "" };
    case StopReason.DEADLINE:
      return {
        text: "The time for this answer ran out.",
        advice: "Ask again, or allow more time in the settings.",
      };
    case StopReason.BUDGET:
      return {
        text: "The budget was used up.",
        advice: "Ask your administrator, or wait for the next period.",
      };
    case StopReason.REPLACED:
      return { text: "A newer message took this answer's place.", advice: "" };
    case StopReason.SIZE_LIMIT:
      return { text: "The answer reached its size limit.", advice: "Ask for the rest in a new message." };
    case StopReason.REVOKED:
      return {
        text: "The right to run this turn was withdrawn.",
        advice: "Sign in again, or ask for access.",
      };
    case StopReason.ADMIN:
      return { text: "An administrator stopped this answer.", advice: "" };
    case StopReason.OWNER_LOST:
    case StopReason.RECOVERY_EXHAUSTED:
      return INTERRUPTED;
    default:
      return { text: "The answer was stopped.", advice: "" };
  }
}

function errorWords(error: TurnError | undefined): Words {
  return { text: errorText(error), advice: error ? adviceFor(error) : "Try again." };
}

function adviceFor({ code, retryable, retryAfterMs }: TurnError): string {
  switch (code) {
    case ErrorCode.RATE_LIMIT:
    case ErrorCode.OVERLOADED:
      return retryAfterMs > 0
        ? `Try again in ${Math.ceil(retryAfterMs / 1_000)} s, or choose another model.`
        : "Wait a moment and try again, or choose another model.";
    case ErrorCode.CONTEXT_TOO_LONG:
      return "Start a new conversation, remove attachments, or choose a model with a larger context.";
    case ErrorCode.MODEL_NOT_FOUND:
      return "Choose another model.";
    case ErrorCode.TOOL_NOT_FOUND:
      return "Choose other tools in the settings.";
    case ErrorCode.UPSTREAM_AUTH:
      return "The operator has to check the provider's key. Choose another model meanwhile.";
    case ErrorCode.UPSTREAM_REJECTED:
      return "Change the request or its settings, or choose another model.";
    case ErrorCode.MODEL_REFUSAL:
      return "Put the question another way, or choose another model.";
    case ErrorCode.BUDGET_EXCEEDED:
      return "Ask your administrator, or wait for the next period.";
    case ErrorCode.CYCLE_LIMIT:
      return "Ask for less at once, or allow more model calls in the settings.";
    case ErrorCode.UNAUTHENTICATED:
    case ErrorCode.PERMISSION_DENIED:
      return "Sign in again, or ask for access.";
    case ErrorCode.UPSTREAM_UNAVAILABLE:
    case ErrorCode.UPSTREAM_STALLED:
    case ErrorCode.UPSTREAM_TRUNCATED:
      return "Try again, or choose another model.";
    default:
      return retryable ? "Try again." : "If it happens again, tell the operator.";
  }
}

/** Capital first, full stop last. */
function sentence(text: string): string {
  const trimmed = text.trim();
  const capital = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
