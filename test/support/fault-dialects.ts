/** A piece of an answer in every wire dialect, for suites that break it. */
import { converseEvent, converseException } from "./event-stream-frames.js";

export interface FaultDialect {
  readonly api: string;
  readonly contentType: string;
  /** Begins an answer; shows nothing. */
  readonly opening: Buffer;
  /** The text as one event. */
  text(text: string): Buffer;
  /** Ends an answer properly. */
  readonly ending: Buffer;
  /** An event that says the server failed in passing. */
  readonly error: Buffer;
  /** What is never an event. */
  readonly garbage: Buffer;
  /** Begins an event that has no end; `filler` goes on with it. */
  readonly endless: Buffer;
  readonly filler: Buffer;
}

const sse = (data: unknown, event = ""): Buffer =>
  Buffer.from(`${event === "" ? "" : `event: ${event}\n`}data: ${JSON.stringify(data)}\n\n`);
const typed = (data: { readonly type: string }): Buffer => sse(data, data.type);
const filler = Buffer.from("x".repeat(16_384));
const SSE = {
  contentType: "text/event-stream",
  garbage: Buffer.from("data: }{ no json\n\n"),
  endless: Buffer.from(`data: {"text":"`),
  filler,
};

export const FAULT_DIALECTS: readonly FaultDialect[] = [
  {
    api: "openai-chat",
    ...SSE,
    opening: sse({ choices: [{ index: 0, delta: { role: "assistant", content: "" } }] }),
    text: (content) => sse({ choices: [{ index: 0, delta: { content } }] }),
    ending: Buffer.concat([
      sse({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }),
      Buffer.from("data: [DONE]\n\n"),
    ]),
    error: sse({ error: { message: "overloaded", type: "server_error", code: 503 } }),
  },
  {
    api: "openai-responses",
    ...SSE,
    opening: typed({ type: "response.created", ...{ response: { id: "r" } } }),
    text: (delta) =>
      typed({
        type: "response.output_text.delta",
        ...{ output_index: 0, content_index: 0, item_id: "m", delta },
      }),
    ending: typed({
      type: "response.completed",
      ...{
        response: { id: "r", status: "completed", output: [], usage: { input_tokens: 1, output_tokens: 1 } },
      },
    }),
    error: typed({ type: "error", ...{ code: "server_error", message: "overloaded" } }),
  },
  {
    api: "anthropic-messages",
    ...SSE,
    opening: Buffer.concat([
      typed({
        type: "message_start",
        ...{ message: { id: "m", usage: { input_tokens: 3, output_tokens: 1 } } },
      }),
      typed({ type: "content_block_start", ...{ index: 0, content_block: { type: "text", text: "" } } }),
    ]),
    text: (text) =>
      typed({ type: "content_block_delta", ...{ index: 0, delta: { type: "text_delta", text } } }),
    ending: Buffer.concat([
      typed({ type: "content_block_stop", ...{ index: 0 } }),
      typed({
        type: "message_delta",
        ...{ delta: { stop_reason: "end_turn" }, usage: { output_tokens: 2 } },
      }),
      typed({ type: "message_stop" }),
    ]),
    error: typed({ type: "error", ...{ error: { type: "overloaded_error", message: "overloaded" } } }),
  },
  {
    api: "gemini",
    ...SSE,
    opening: sse({ candidates: [{ content: { role: "model", parts: [] } }] }),
    text: (text) => sse({ candidates: [{ content: { parts: [{ text }] } }] }),
    ending: sse({ candidates: [{ content: { parts: [] }, finishReason: "STOP" }] }),
    error: sse({ error: { code: 503, message: "overloaded", status: "UNAVAILABLE" } }),
  },
  {
    api: "ollama-chat",
    contentType: "application/x-ndjson",
    opening: line({ message: { role: "assistant", content: "" }, done: false }),
    text: (content) => line({ message: { content }, done: false }),
    ending: line({ message: {}, done: true, done_reason: "stop" }),
    error: line({ error: "model runner is unavailable" }),
    garbage: Buffer.from("}{ no json\n"),
    endless: Buffer.from(`{"message":{"content":"`),
    filler,
  },
  {
    api: "cohere-v2",
    ...SSE,
    opening: typed({ type: "message-start", ...{ id: "c" } }),
    text: (text) =>
      typed({ type: "content-delta", ...{ index: 0, delta: { message: { content: { text } } } } }),
    ending: typed({ type: "message-end", ...{ delta: { finish_reason: "COMPLETE" } } }),
    error: sse({ message: "internal server error", status_code: 503 }),
  },
  {
    api: "bedrock-converse",
    contentType: "application/vnd.amazon.eventstream",
    opening: converseEvent("messageStart", { role: "assistant" }),
    text: (text) => converseEvent("contentBlockDelta", { contentBlockIndex: 0, delta: { text } }),
    ending: Buffer.concat([
      converseEvent("messageStop", { stopReason: "end_turn" }),
      converseEvent("metadata", {}),
    ]),
    error: converseException("serviceUnavailableException", "overloaded"),
    garbage: Buffer.from("this is no frame of an event stream at all, not one"),
    endless: Buffer.from([0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]),
    filler,
  },
];

function line(value: unknown): Buffer {
  return Buffer.from(`${JSON.stringify(value)}\n`);
}
