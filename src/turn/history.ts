/** The messages a model is given: the branch so far, the new message, and within a turn its own steps. */
import { create } from "@bufbuild/protobuf";
import type { Block, LaneState, ToolBlock } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { BlockStatus } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { ContentPart, ModelMessage } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import {
  ContentPartSchema,
  MediaPartSchema,
  ModelMessageSchema,
  Role,
  ToolCallPartSchema,
  ToolResultPartSchema,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import type { UserInput } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { normalizeArguments } from "./argument-stream.js";
import { isHighSurrogate } from "./packets.js";
import type { StepOutcome } from "./step.js";

/** One message of the branch, root first. */
export interface BranchMessage {
  readonly role: "user" | "assistant";
  /** Of a user's message. */
  readonly input?: UserInput;
  /** Of an assistant's message; undefined or empty when its turn never got to say anything. */
  readonly answer?: LaneState;
}

export interface HistoryInput {
  /** "" = none. */
  readonly systemPrompt: string;
  /** What came before, without the new message. */
  readonly branch: readonly BranchMessage[];
  readonly userInput: UserInput;
  /** Characters that all texts together may have. The system prompt and the new message are given in any case. */
  readonly maxChars: number;
  /** Characters of one earlier tool result. Default 8,000. */
  readonly maxResultChars?: number;
}

/** A call's result as the model reads it, whole. A ToolCallResult will do where it is not truncated. */
export interface CallResultText {
  readonly callId: string;
  readonly status: ToolCallStatus;
  readonly modelText: string;
}

const DEFAULT_MAX_RESULT_CHARS = 8_000;
const NO_RESULT_TEXT = "The call has no result.";
/** Stands where an answer should be, so that two messages of the user do not run together. */
const UNANSWERED_TEXT = "(This message was not answered.)";

/**
 * The messages of a lane's first model call. When they are too long the oldest exchanges (a user's message with all that
 * answered it) are left out whole, so a call never loses its result; `droppedMessages` counts the branch messages left out.
 */
export function buildModelMessages(input: HistoryInput): {
  messages: ModelMessage[];
  droppedMessages: number;
} {
  const system =
    input.systemPrompt === ""
      ? []
      : [message(Role.SYSTEM, [part({ case: "text", value: input.systemPrompt })])];
  const asked = userMessage(input.userInput);
  const maxResultChars = input.maxResultChars ?? DEFAULT_MAX_RESULT_CHARS;
  const exchanges = exchangesOf(input.branch, maxResultChars);

  let room = input.maxChars - charsOf([...system, asked]);
  let first = exchanges.length;
  while (first > 0) {
    room -= charsOf(exchanges[first - 1]!.messages);
    if (room < 0) break;
    first--;
  }
  const kept = exchanges.slice(first);
  const droppedMessages = exchanges
    .slice(0, first)
    .reduce((sum, exchange) => sum + exchange.branchMessages, 0);
  return { messages: [...system, ...kept.flatMap((exchange) => exchange.messages), asked], droppedMessages };
}

/** The messages for the lane's next model call: those given, the step's own message, and the results of its calls. */
export function appendStep(
  messages: readonly ModelMessage[],
  outcome: StepOutcome,
  results: readonly CallResultText[],
): ModelMessage[] {
  const resultOf = new Map(results.map((result) => [result.callId, result]));
  const answers = outcome.calls.map((call) => resultMessage(call.modelCallId, resultOf.get(call.callId)));
  const own = outcome.assistantMessage.parts.length > 0 ? [outcome.assistantMessage] : [];
  return [...messages, ...own, ...answers];
}

interface Exchange {
  readonly messages: ModelMessage[];
  /** How many messages of the branch it is made of. */
  branchMessages: number;
}

function exchangesOf(branch: readonly BranchMessage[], maxResultChars: number): Exchange[] {
  const exchanges: Exchange[] = [];
  let answered = true;
  const endExchange = (): void => {
    if (!answered)
      exchanges
        .at(-1)!
        .messages.push(message(Role.ASSISTANT, [part({ case: "text", value: UNANSWERED_TEXT })]));
    answered = true;
  };
  for (const item of branch) {
    if (item.role === "user") {
      endExchange();
      exchanges.push({ messages: item.input ? [userMessage(item.input)] : [], branchMessages: 1 });
      answered = !item.input;
      continue;
    }
    if (exchanges.length === 0) exchanges.push({ messages: [], branchMessages: 0 });
    const exchange = exchanges.at(-1)!;
    const messages = item.answer ? answerMessages(item.answer, maxResultChars) : [];
    exchange.messages.push(...messages);
    exchange.branchMessages++;
    answered ||= messages.length > 0;
  }
  endExchange();
  return exchanges;
}

function userMessage(input: UserInput): ModelMessage {
  const media = input.attachments.map((file) =>
    part({
      case: "media",
      value: create(MediaPartSchema, {
        mediaType: file.mediaType,
        name: file.name,
        source: { case: "fileId", value: file.fileId },
      }),
    }),
  );
  const text = input.text === "" && media.length > 0 ? [] : [part({ case: "text", value: input.text })];
  return message(Role.USER, [...media, ...text]);
}

/** An earlier answer: per cycle what the model wrote and called, then its calls' results. Reasoning stays behind. */
function answerMessages(answer: LaneState, maxResultChars: number): ModelMessage[] {
  const messages: ModelMessage[] = [];
  const blocks = answer.blocks.filter(
    (block) => block.status !== BlockStatus.DISCARDED && block.placement?.subTurnIndex === undefined,
  );
  const idOf = modelIds(blocks);
  for (const cycle of new Set(blocks.map((block) => block.cycle))) {
    const parts: ContentPart[] = [];
    const results: ModelMessage[] = [];
    for (const { block } of blocks.filter((candidate) => candidate.cycle === cycle)) {
      if (block.case === "answer" && block.value.text !== "") {
        parts.push(part({ case: "text", value: block.value.text }));
      } else if (block.case === "tool" && block.value.ready) {
        const id = idOf(block.value);
        parts.push(part({ case: "toolCall", value: callPart(block.value, id) }));
        results.push(resultMessage(id, boundResult(block.value.result, maxResultChars)));
      }
    }
    if (parts.length > 0) messages.push(message(Role.ASSISTANT, parts), ...results);
  }
  return messages;
}

/** The provider's id of a call where it is unique in the answer, else ours. */
function modelIds(blocks: readonly Block[]): (tool: ToolBlock) => string {
  const uses = new Map<string, number>();
  for (const { block } of blocks) {
    const id = block.case === "tool" ? block.value.call?.providerCallId : undefined;
    if (id) uses.set(id, (uses.get(id) ?? 0) + 1);
  }
  return ({ call }) =>
    uses.get(call?.providerCallId ?? "") === 1 ? call!.providerCallId : (call?.callId ?? "");
}

function callPart(tool: ToolBlock, id: string) {
  const normal = normalizeArguments(tool.argumentsJson);
  const isRunnable = normal.valid && tool.ready?.argumentsValid !== false;
  return create(ToolCallPartSchema, {
    callId: id,
    name: tool.call?.toolName ?? "",
    argumentsJson: isRunnable ? normal.json : "{}",
  });
}

function boundResult(result: CallResultText | undefined, maxChars: number): CallResultText | undefined {
  if (!result || result.modelText.length <= maxChars) return result;
  const end = isHighSurrogate(result.modelText.charCodeAt(maxChars - 1)) ? maxChars - 1 : maxChars;
  const modelText = `${result.modelText.slice(0, end)}\n(${result.modelText.length - end} more characters are left out.)`;
  return { callId: result.callId, status: result.status, modelText };
}

function resultMessage(id: string, result: CallResultText | undefined): ModelMessage {
  const value = create(ToolResultPartSchema, {
    callId: id,
    text: result?.modelText ?? NO_RESULT_TEXT,
    isError: result?.status !== ToolCallStatus.OK,
  });
  return message(Role.TOOL, [part({ case: "toolResult", value })]);
}

function message(role: Role, parts: ContentPart[]): ModelMessage {
  return create(ModelMessageSchema, { role, parts });
}

function part(value: ContentPart["part"]): ContentPart {
  const content = create(ContentPartSchema);
  content.part = value;
  return content;
}

function charsOf(messages: readonly ModelMessage[]): number {
  let chars = 0;
  for (const { parts } of messages) {
    for (const { part: content } of parts) {
      if (content.case === "text" || content.case === "reasoning" || content.case === "refusal")
        chars += content.value.length;
      else if (content.case === "toolCall")
        chars += content.value.name.length + content.value.argumentsJson.length;
      else if (content.case === "toolResult") chars += content.value.text.length;
    }
  }
  return chars;
}
