/** The words of a step: what it is started with and what it comes to. */
import type { MediaPart, ModelMessage, Warning } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { Document, FinishReason, TurnError, Usage } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { ToolChoiceKind } from "../../gen/turnwire/packet/v1/control_pb.js";
import type { Placement } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { CitableDocument, CitationStyle } from "./citations.js";
import type { LanePlacement } from "./placement.js";

/** What the decoder must know of a tool to announce a call of it. */
export interface StepTool {
  readonly toolId: string;
  readonly displayName: string;
  /** Top-level string arguments are streamed decoded, beside the raw text. */
  readonly streamsArguments: boolean;
  /** Argument (a list) by which several calls of a step are merged into one; "" or undefined = they are not. */
  readonly mergeArgument?: string;
  readonly clientSide: boolean;
}

export interface StepOptions {
  readonly modelIndex: number;
  /** Number of the cycle whose model call this is. */
  readonly cycle: number;
  /** The lane's counter; the step takes its indices from it. */
  readonly placement: LanePlacement;
  readonly newCallId: () => string;
  /** Looked up by the name the model used. undefined = unknown tool: its call is announced with an empty tool_id. */
  readonly toolByName: (name: string) => StepTool | undefined;
  /** Milliseconds from the turn's start to this model call; stands in AgentResponseStart. Default 0. */
  readonly preAnswerMs?: number;
  /** Documents known before the answer; stand in AgentResponseStart. Default none. */
  readonly finalDocuments?: readonly Document[];
  /** How the answer's citation markers are written; undefined = they stay as they are. */
  readonly citations?: {
    readonly style: CitationStyle;
    /** What a number stands for; undefined = it is not mapped. */
    readonly documentOf: (number: number) => CitableDocument | undefined;
  };
  /** False when the model was told to call nothing: its text is the answer, also if it calls something. Default true. */
  readonly toolsOffered?: boolean;
  /** As CycleStarted said it; repeated in the CycleStarted after a reset. */
  readonly modelId?: string;
  readonly toolChoice?: ToolChoiceKind;
  /** As CycleStarted said it. Default 1. */
  readonly attempt?: number;
  /** Usage of this cycle under earlier owners of the turn: the step's figures include it. Default none. */
  readonly priorUsage?: Usage;
  /** For an agent's step: the call it runs in. */
  readonly parentCallId?: string;
}

/** A call that the model made and that can be answered. */
export interface DecodedCall {
  /** Ours; unique in the turn. */
  readonly callId: string;
  /** The provider's; may be empty or repeated. */
  readonly providerCallId: string;
  /** The id in messages to the model: the provider's when it is unique in the step, else ours. */
  readonly modelCallId: string;
  /** "" = no such tool. */
  readonly toolId: string;
  readonly toolName: string;
  readonly clientSide: boolean;
  readonly placement: Placement;
  /** Whole, however long; "{}" when the model sent nothing. */
  readonly argumentsJson: string;
  /** False: not the JSON text of an object. Such a call must be answered with an error result, not run. */
  readonly argumentsValid: boolean;
  /** The call that runs for this one too; undefined = it runs itself. */
  readonly mergedIntoCallId?: string;
  /** What it runs with, when other calls were merged into it. */
  readonly mergedArgumentsJson?: string;
}

/** What a step came to. `text` is everything visible it wrote, `reasoning` all its reasoning. */
export interface StepOutcome {
  /** failed: `error` says why; what was shown before stays. */
  readonly kind: "answered" | "wants_tools" | "stopped" | "failed";
  readonly text: string;
  readonly reasoning: string;
  /** The calls to run, in order of first appearance; empty unless wants_tools. */
  readonly calls: readonly DecodedCall[];
  /** UNSPECIFIED when the stream ended without saying. */
  readonly finishReason: FinishReason;
  /** Of all attempts of the cycle, given up or not. */
  readonly usage: Usage;
  /** The same as CycleEnd says it: an arena's without the cost, which LaneEnd has. */
  readonly shownUsage: Usage;
  /** For the next call of the same lane. */
  readonly assistantMessage: ModelMessage;
  /** Set when failed. */
  readonly error?: TurnError;
  /** The model that really answered; "" = the one that was asked. */
  readonly modelId: string;
  /** The model ended inside a reasoning tag. */
  readonly reasoningOpen: boolean;
  /** What the model made besides text; the caller stores it as files. */
  readonly media: readonly MediaPart[];
  /** What was wrong on the wire and decoded on; at most 16. */
  readonly warnings: readonly Warning[];
}

/** Why a step is over. */
export type StepEnd =
  | { readonly kind: "done" }
  | { readonly kind: "stopped" }
  | { readonly kind: "failed"; readonly error: TurnError };
