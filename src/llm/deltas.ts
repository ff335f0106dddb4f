/**
 * Deltas as plain objects. `create()` costs several times the object it makes, and these are made once per token, so the
 * hot ones are written out; the types keep them equal to the descriptors.
 */
import { create } from "@bufbuild/protobuf";
import {
  FinishDeltaSchema,
  type CitationDelta,
  type CompletionDelta,
  type MediaPart,
  type ProviderState,
  type ServerToolCall,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import {
  TurnErrorSchema,
  type TurnError as TurnErrorMessage,
  type ErrorCode,
  type FinishReason,
  type Usage,
} from "../../gen/turnwire/packet/v1/common_pb.js";
import type { KnownErrorCode, TurnError } from "../lib/errors.js";

/** Whether it is something that a reader will see: what the first-token time waits for. */
export function shows({ delta }: CompletionDelta): boolean {
  switch (delta.case) {
    case "content":
      return delta.value.text !== "";
    case "reasoning":
      return delta.value.text !== "" || delta.value.redacted;
    case "refusal":
      return delta.value !== "";
    case "toolCall":
    case "media":
    case "serverToolCall":
    case "citation":
      return true;
    default:
      return false;
  }
}

const DELTA = "turnwire.llm.v1.CompletionDelta";

/** Answer text. */
export function contentDelta(blockIndex: number, text: string): CompletionDelta {
  return {
    $typeName: DELTA,
    delta: { case: "content", value: { $typeName: "turnwire.llm.v1.ContentDelta", blockIndex, text } },
  };
}

/** Reasoning text; `redacted` blocks have none. */
export function reasoningDelta(
  blockIndex: number,
  text: string,
  flags: { readonly summary?: boolean; readonly redacted?: boolean } = {},
): CompletionDelta {
  return {
    $typeName: DELTA,
    delta: {
      case: "reasoning",
      value: {
        $typeName: "turnwire.llm.v1.ReasoningDelta",
        blockIndex,
        text,
        summary: flags.summary ?? false,
        redacted: flags.redacted ?? false,
      },
    },
  };
}

/** A piece of a tool call. */
export interface ToolCallPiece {
  readonly blockIndex: number;
  readonly callId: string;
  /** The whole name; "" = as said before. */
  readonly name?: string;
  readonly argumentsFragment?: string;
  /** The last piece: the arguments are whole and parse. */
  readonly complete?: boolean;
  /** The last piece: the answer ended properly, but the arguments do not parse. */
  readonly argumentsInvalid?: boolean;
}

export function toolCallDelta(piece: ToolCallPiece): CompletionDelta {
  return {
    $typeName: DELTA,
    delta: {
      case: "toolCall",
      value: {
        $typeName: "turnwire.llm.v1.ToolCallDelta",
        blockIndex: piece.blockIndex,
        callId: piece.callId,
        name: piece.name ?? "",
        argumentsFragment: piece.argumentsFragment ?? "",
        complete: piece.complete ?? false,
        argumentsInvalid: piece.argumentsInvalid ?? false,
      },
    },
  };
}

/** A piece of the model's refusal. */
export function refusalDelta(text: string): CompletionDelta {
  return { $typeName: DELTA, delta: { case: "refusal", value: text } };
}

export function attemptStartedDelta(
  attempt: number,
  provider: string,
  upstreamModel: string,
): CompletionDelta {
  return {
    $typeName: DELTA,
    delta: {
      case: "attemptStarted",
      value: { $typeName: "turnwire.llm.v1.AttemptStarted", attempt, provider, upstreamModel },
    },
  };
}

/** An attempt is given up, and another one follows. */
export function attemptBoundaryDelta(
  failedAttempt: number,
  cause: TurnError,
  nextModelId: string,
): CompletionDelta {
  const message = errorMessage(cause);
  return {
    $typeName: DELTA,
    delta: {
      case: "attemptBoundary",
      value: { $typeName: "turnwire.llm.v1.AttemptBoundary", failedAttempt, cause: message, nextModelId },
    },
  };
}

export function modelSelectedDelta(modelId: string): CompletionDelta {
  return {
    $typeName: DELTA,
    delta: { case: "modelSelected", value: { $typeName: "turnwire.llm.v1.ModelSelected", modelId } },
  };
}

export function parametersDroppedDelta(names: readonly string[]): CompletionDelta {
  return {
    $typeName: DELTA,
    delta: {
      case: "parametersDropped",
      value: { $typeName: "turnwire.llm.v1.ParametersDropped", names: [...names] },
    },
  };
}

/** What the attempt cost. */
export function usageDelta(usage: Usage, attempt: number): CompletionDelta {
  return {
    $typeName: DELTA,
    delta: { case: "usage", value: { $typeName: "turnwire.llm.v1.UsageDelta", usage, attempt } },
  };
}

export function finishDelta(finish: {
  readonly reason: FinishReason;
  readonly rawReason?: string;
  readonly providerResponseId?: string;
  readonly reasoningOpen?: boolean;
}): CompletionDelta {
  return { $typeName: DELTA, delta: { case: "finish", value: create(FinishDeltaSchema, finish) } };
}

export function citationDelta(citation: CitationDelta): CompletionDelta {
  return { $typeName: DELTA, delta: { case: "citation", value: citation } };
}

export function providerStateDelta(state: ProviderState): CompletionDelta {
  return { $typeName: DELTA, delta: { case: "providerState", value: state } };
}

export function serverToolCallDelta(call: ServerToolCall): CompletionDelta {
  return { $typeName: DELTA, delta: { case: "serverToolCall", value: call } };
}

/** An image, sound or document that the model made. */
export function mediaDelta(media: MediaPart): CompletionDelta {
  return { $typeName: DELTA, delta: { case: "media", value: media } };
}

/** Something was wrong and was skipped. */
export function warningDelta(code: KnownErrorCode, message: string): CompletionDelta {
  return {
    $typeName: DELTA,
    delta: {
      case: "warning",
      value: { $typeName: "turnwire.llm.v1.Warning", code: code as ErrorCode, message },
    },
  };
}

/** The end of an attempt that failed. What was sent before it stays valid. */
export function errorDelta(error: TurnError, modelId = ""): CompletionDelta {
  return { $typeName: DELTA, delta: { case: "error", value: errorMessage(error, modelId) } };
}

function errorMessage(error: TurnError, modelId = ""): TurnErrorMessage {
  return create(TurnErrorSchema, {
    code: error.code as ErrorCode,
    message: error.message,
    retryable: error.retryable,
    retryAfterMs: error.retryAfterMs,
    modelId,
    details: { ...error.details },
  });
}
