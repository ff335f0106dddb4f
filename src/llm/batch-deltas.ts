/** Bounds the messages of a completion stream: one per read of the provider, but never larger than a reader can take. */
import type {
  CompletionDelta,
  StreamCompletionResponse,
} from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { contentDelta, reasoningDelta, refusalDelta, toolCallDelta } from "./deltas.js";
import { splitText } from "./well-formed.js";

export const MAX_RESPONSE_BYTES = 64 * 1024;
/** UTF-16 units of one text: at most three bytes each. */
const MAX_TEXT_CHARS = 16 * 1024;
const BYTES_PER_CHAR = 3;
const BYTES_PER_DELTA = 64;

/** The deltas in messages of at most 64 KiB; long texts are cut between code points. Other payloads are left whole: a larger one is a message of its own. */
export function batchDeltas(deltas: readonly CompletionDelta[]): StreamCompletionResponse[] {
  const batches: StreamCompletionResponse[] = [];
  let batch: CompletionDelta[] = [];
  let bytes = 0;
  for (const delta of deltas) {
    for (const piece of textOf(delta).length > MAX_TEXT_CHARS ? cut(delta) : [delta]) {
      const size = BYTES_PER_DELTA + textOf(piece).length * BYTES_PER_CHAR + wholeBytes(piece);
      if (bytes + size > MAX_RESPONSE_BYTES && batch.length > 0) {
        batches.push(responseOf(batch));
        batch = [];
        bytes = 0;
      }
      batch.push(piece);
      bytes += size;
    }
  }
  if (batch.length > 0) batches.push(responseOf(batch));
  return batches;
}

function responseOf(deltas: CompletionDelta[]): StreamCompletionResponse {
  return { $typeName: "turnwire.llm.v1.StreamCompletionResponse", deltas };
}

/** The text of a delta that can be cut; "" for all others. */
function textOf({ delta }: CompletionDelta): string {
  switch (delta.case) {
    case "content":
    case "reasoning":
      return delta.value.text;
    case "toolCall":
      return delta.value.argumentsFragment;
    case "refusal":
      return delta.value;
    default:
      return "";
  }
}

/** Of a payload that cannot be cut. */
function wholeBytes({ delta }: CompletionDelta): number {
  switch (delta.case) {
    case "providerState":
      return delta.value.data.length;
    case "serverToolCall":
      return (delta.value.argumentsJson.length + delta.value.resultJson.length) * BYTES_PER_CHAR;
    case "media":
      return delta.value.source.case === "data" ? delta.value.source.value.length : 0;
    case "citation":
      return (delta.value.document?.snippet.length ?? 0) * BYTES_PER_CHAR;
    default:
      return 0;
  }
}

function cut(whole: CompletionDelta): CompletionDelta[] {
  const { delta } = whole;
  const pieces = splitText(textOf(whole), MAX_TEXT_CHARS);
  switch (delta.case) {
    case "content":
      return pieces.map((text) => contentDelta(delta.value.blockIndex, text));
    case "reasoning":
      return pieces.map((text) => reasoningDelta(delta.value.blockIndex, text, delta.value));
    case "refusal":
      return pieces.map(refusalDelta);
    case "toolCall": {
      const { blockIndex, callId, name, complete, argumentsInvalid } = delta.value;
      const last = pieces.length - 1;
      return pieces.map((argumentsFragment, at) =>
        toolCallDelta({
          ...{ blockIndex, callId, argumentsFragment },
          name: at === 0 ? name : "",
          complete: at === last && complete,
          argumentsInvalid: at === last && argumentsInvalid,
        }),
      );
    }
    default:
      return [whole];
  }
}
