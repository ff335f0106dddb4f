import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { toClientError, type TurnwireClientError } from "./errors.js";

/** What went wrong and what to do about it, each one sentence. */
export interface Explanation {
  readonly text: string;
  readonly advice: string;
}

/** Puts a failed call into words for people. */
export function explainError(thrown: unknown): Explanation {
  const error = toClientError(thrown);
  return { text: sentence(error.message), advice: adviceFor(error) };
}

function adviceFor({ code, retryable, typed, retryAfterMs }: TurnwireClientError): string {
  switch (code) {
    case ErrorCode.UNAUTHENTICATED:
      return "Sign in with a valid token.";
    case ErrorCode.PERMISSION_DENIED:
      return "Ask your administrator for access.";
    case ErrorCode.NOT_FOUND:
      return "It may have been deleted. Reload the page to see what is there.";
    case ErrorCode.SESSION_BUSY:
      return "Wait for the answer, or stop it first.";
    case ErrorCode.MODEL_NOT_FOUND:
      return "Choose another model in the settings of the conversation.";
    case ErrorCode.TOOL_NOT_FOUND:
      return "Open the settings of the conversation and choose the tools again.";
    case ErrorCode.BUDGET_EXCEEDED:
      return "Ask your administrator, or wait for the next period.";
    case ErrorCode.SIZE_LIMIT:
      return "Make it smaller, or attach it as a file.";
    case ErrorCode.INVALID_ARGUMENT:
      return "Change what is named and try again.";
    case ErrorCode.REQUEST_CONFLICT:
      return "Send it again as a new message.";
    case ErrorCode.NOT_BUILT:
      return "This server does not offer it.";
    case ErrorCode.UNAVAILABLE:
      return typed
        ? "Try again in a moment."
        : "Check the connection to the server; the page tries again by itself.";
    default:
      if (retryAfterMs > 0) return `Try again in ${Math.ceil(retryAfterMs / 1_000)} s.`;
      return retryable ? "Try again in a moment." : "If it stays, tell whoever runs this server.";
  }
}

function sentence(text: string): string {
  const trimmed = text.trim();
  if (!trimmed) return "Something went wrong.";
  const begun = trimmed[0]!.toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
