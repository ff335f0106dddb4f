import type { LaneState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { ModelMessage } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { UserInput } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import type { StepOutcome } from "./step.js";
export interface BranchMessage { readonly role: "user" | "assistant"; readonly input?: UserInput; readonly answer?: LaneState }
export interface HistoryInput { readonly systemPrompt: string; readonly branch: readonly BranchMessage[]; readonly userInput: UserInput; readonly maxChars: number; readonly maxResultChars?: number }
/** A call's result as the model reads it, whole. A ToolCallResult will do when it is not truncated. */
export interface CallResultText { readonly callId: string; readonly status: ToolCallStatus; readonly modelText: string }
export function buildModelMessages(_input: HistoryInput): { messages: ModelMessage[]; droppedMessages: number } { throw new Error("to come"); }
/** The messages for the lane's next model call: as given, then the step's own message and its calls' results. */
export function appendStep(_messages: readonly ModelMessage[], _outcome: StepOutcome, _results: readonly CallResultText[]): ModelMessage[] { throw new Error("to come"); }
