/** Makes packets, adds usage, cuts texts. Nothing here decides anything. */
import { create } from "@bufbuild/protobuf";
import type { DescMessage, MessageInitShape } from "@bufbuild/protobuf";
import type { GenMessage } from "@bufbuild/protobuf/codegenv2";
import type { TurnError as TurnErrorMessage, Usage } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnErrorSchema, UsageSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import type { Packet, Placement } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { PacketSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { TurnError } from "../lib/errors.js";

/** A payload that this build knows. */
export type Payload = Extract<Packet["payload"], { case: string }>;
/** The oneof case of a payload: the only spelling of a packet's kind. */
export type PayloadCase = Payload["case"];
/** The message of one payload case. */
export type PayloadOf<C extends PayloadCase> = Extract<Payload, { case: C }>["value"];

/** Longest text, in UTF-8 bytes, that one delta or one unsplittable payload carries. */
export const MAX_TEXT_BYTES = 64 * 1024;
const MAX_UINT32 = 0xffff_ffff;

const payloadSchemas = new Map<string, DescMessage>(
  PacketSchema.fields.flatMap((field) =>
    field.oneof && field.message ? [[field.localName, field.message]] : [],
  ),
);

/** A packet with seq 0 and t_ms 0: the turn's writer numbers it. `value` may leave fields out, as `create` allows. */
export function packet<C extends PayloadCase>(
  payloadCase: C,
  value: MessageInitShape<GenMessage<PayloadOf<C>>>,
  placement: Placement | undefined,
  mustUnderstand = false,
): Packet {
  const schema = payloadSchemas.get(payloadCase)!;
  return envelope(
    { case: payloadCase, value: create(schema, value as never) } as unknown as Payload,
    placement,
    mustUnderstand,
  );
}

/** The packet of one piece of answer text. On the hot path: no schema is looked at. */
export function answerDelta(content: string, placement: Placement): Packet {
  return envelope(
    { case: "agentResponseDelta", value: { $typeName: "turnwire.packet.v1.AgentResponseDelta", content } },
    placement,
    false,
  );
}

/** The packet of one piece of reasoning. */
export function reasoningDelta(reasoning: string, placement: Placement): Packet {
  return envelope(
    { case: "reasoningDelta", value: { $typeName: "turnwire.packet.v1.ReasoningDelta", reasoning } },
    placement,
    false,
  );
}

/** The packet of one raw argument fragment, with what it appends to top-level string arguments. */
export function argumentDelta(
  callId: string,
  raw: string,
  argumentDeltas: Record<string, string>,
  placement: Placement,
): Packet {
  return envelope(
    {
      case: "toolCallArgumentDelta",
      value: { $typeName: "turnwire.packet.v1.ToolCallArgumentDelta", callId, raw, argumentDeltas },
    },
    placement,
    false,
  );
}

function envelope(payload: Payload, placement: Placement | undefined, mustUnderstand: boolean): Packet {
  return { $typeName: "turnwire.packet.v1.Packet", seq: 0, placement, tMs: 0, mustUnderstand, payload };
}

/** The error as packets and states carry it. The cause stays behind. */
export function errorMessage(error: TurnError, modelId = ""): TurnErrorMessage {
  return create(TurnErrorSchema, {
    code: error.code,
    message: error.message,
    retryable: error.retryable,
    retryAfterMs: error.retryAfterMs,
    modelId,
    details: { ...error.details },
  });
}

/** No usage at all; a fresh message at each call. */
export function zeroUsage(): Usage {
  return create(UsageSchema);
}

/**
 * The sum of two usages, saturating at uint32. Costs add up while the currency is the same; when it differs the first
 * one's cost is kept and the sum is marked as estimated. Neither argument is changed.
 */
export function addUsage(a: Usage | undefined, b: Usage | undefined): Usage {
  const left = a ?? zeroUsage();
  const right = b ?? zeroUsage();
  const currency = left.currency || right.currency;
  const sameCurrency = !left.currency || !right.currency || left.currency === right.currency;
  const cost = sameCurrency ? BigInt(left.costMicros) + BigInt(right.costMicros) : BigInt(left.costMicros);
  return create(UsageSchema, {
    inputTokens: addUint32(left.inputTokens, right.inputTokens),
    outputTokens: addUint32(left.outputTokens, right.outputTokens),
    reasoningTokens: addUint32(left.reasoningTokens, right.reasoningTokens),
    cacheReadTokens: addUint32(left.cacheReadTokens, right.cacheReadTokens),
    cacheWriteTokens: addUint32(left.cacheWriteTokens, right.cacheWriteTokens),
    estimated: left.estimated || right.estimated || !sameCurrency,
    costMicros: cost.toString(),
    currency,
    attempts: addUint32(left.attempts, right.attempts),
  });
}

/** Sums any number of usages. */
export function sumUsage(usages: Iterable<Usage | undefined>): Usage {
  let sum = zeroUsage();
  for (const usage of usages) if (usage) sum = addUsage(sum, usage);
  return sum;
}

function addUint32(a: number, b: number): number {
  return Math.min(a + b, MAX_UINT32);
}

/** UTF-8 length of the code unit at `index`; a low surrogate counts 0, its pair's 4 bytes stand at the high one. */
function bytesAt(text: string, index: number): number {
  const unit = text.charCodeAt(index);
  if (unit < 0x80) return 1;
  if (unit < 0x800) return 2;
  if (isHighSurrogate(unit) && isLowSurrogate(text.charCodeAt(index + 1))) return 4;
  if (isLowSurrogate(unit) && index > 0 && isHighSurrogate(text.charCodeAt(index - 1))) return 0;
  return 3;
}

/** UTF-8 length of a text, a lone surrogate counting as U+FFFD. */
export function byteLength(text: string): number {
  let bytes = 0;
  for (let i = 0; i < text.length; i++) bytes += bytesAt(text, i);
  return bytes;
}

/** The longest prefix of `text` that has at most `maxBytes` in UTF-8 and ends at a code point. */
export function cutText(text: string, maxBytes: number): string {
  if (text.length * 3 <= maxBytes) return text;
  let bytes = 0;
  for (let i = 0; i < text.length; i++) {
    bytes += bytesAt(text, i);
    if (bytes > maxBytes) return text.slice(0, i);
  }
  return text;
}

/**
 * Cuts a text into pieces of at most `maxBytes` (>= 4) UTF-8 bytes, only between code points. The pieces joined are the
 * text; an empty text has no pieces.
 */
export function splitText(text: string, maxBytes: number): string[] {
  if (text === "") return [];
  if (text.length * 3 <= maxBytes) return [text];
  const pieces: string[] = [];
  let start = 0;
  let bytes = 0;
  for (let i = 0; i < text.length; i++) {
    const more = bytesAt(text, i);
    if (bytes + more > maxBytes) {
      pieces.push(text.slice(start, i));
      start = i;
      bytes = 0;
    }
    bytes += more;
  }
  pieces.push(text.slice(start));
  return pieces;
}

/** True for the first half of a surrogate pair. */
export function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}

/** True for the second half of a surrogate pair; false for NaN. */
export function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}

const LONE_SURROGATE = /\p{Surrogate}/u;
const LONE_SURROGATES = /\p{Surrogate}/gu;

/** True when the text has a surrogate without its partner: such a text has no UTF-8 form. */
export function hasLoneSurrogate(text: string): boolean {
  return LONE_SURROGATE.test(text);
}

/** The text with each lone surrogate replaced (default U+FFFD). */
export function replaceLoneSurrogates(text: string, by = "\ufffd"): string {
  return hasLoneSurrogate(text) ? text.replace(LONE_SURROGATES, by) : text;
}
