/** Bodies as servers write them, in few words. */

/** Server-sent events that have only data: objects as JSON, texts as they are. */
export function sse(...events: readonly (object | string)[]): string {
  return events.map((event) => `data: ${textOf(event)}\n\n`).join("");
}

/** Server-sent events under the name of their type. */
export function namedSse(...events: readonly ({ readonly type: string } & object)[]): string {
  return events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");
}

/** One JSON value per line. */
export function lines(...values: readonly object[]): string {
  return values.map((value) => `${JSON.stringify(value)}\n`).join("");
}

/** A chunk of OpenAI chat. */
export function chunk(delta: unknown, finish: unknown = null, more: object = {}): object {
  const choices = [{ index: 0, delta, finish_reason: finish }];
  return { id: "c1", object: "chat.completion.chunk", model: "m", choices, ...more };
}

/** One that brings a piece of a call. */
export function callChunk(...calls: readonly object[]): object {
  return chunk({ tool_calls: calls });
}

/** A chunk of Gemini. */
export function geminiChunk(parts: readonly object[], more: object = {}): object {
  return { candidates: [{ content: { role: "model", parts }, index: 0, ...more }] };
}

function textOf(event: object | string): string {
  return typeof event === "string" ? event : JSON.stringify(event);
}
