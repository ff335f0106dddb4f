/**
 * Servers in miniature: one answer, written as a server of each dialect may write it. What is free (names of members, where
 * counts and the reason stand, how texts are cut, noise in between) is drawn at random.
 */
import { converseEvent } from "./event-stream-frames.js";

/** What an answer says, whatever its dialect. Texts and names are not empty. */
export interface Answer {
  readonly blocks: readonly AnswerBlock[];
  /** How it ends, where it calls no tool. */
  readonly end: "stop" | "length";
  readonly usage: { readonly input: number; readonly output: number };
}

export type AnswerBlock =
  | { readonly kind: "text" | "reasoning"; readonly text: string }
  | { readonly kind: "call"; readonly name: string; readonly args: Readonly<Record<string, unknown>> };

/** 0 <= n < 1. */
export type Random = () => number;

/** One answer as a body: `events` are its parts in order, those from `endsAt` on say how it ended. */
export interface WrittenAnswer {
  readonly events: readonly Buffer[];
  readonly endsAt: number;
}

export type AnswerWriter = (answer: Answer, random: Random) => WrittenAnswer;

/** The writers by the names of their dialects. */
export const ANSWER_WRITERS: Readonly<Record<string, AnswerWriter>> = {
  "openai-chat": writeOpenAiChat,
  "openai-responses": writeResponses,
  "anthropic-messages": writeAnthropic,
  gemini: writeGemini,
  "ollama-chat": writeOllama,
  "cohere-v2": writeCohere,
  "bedrock-converse": writeBedrock,
};

const REASONING_NAMES = [
  ...["reasoning_content", "reasoning", "reasoning_text", "thinking", "thinking_content"],
];

function writeOpenAiChat({ blocks, end, usage }: Answer, random: Random): WrittenAnswer {
  const { chance, pick } = draws(random);
  const events: (object | string)[] = [];
  const counts = { prompt_tokens: usage.input, completion_tokens: usage.output };
  const runningCounts = chance() ? { usage: { ...counts, completion_tokens: 1 } } : { usage: null };
  const add = (delta: unknown, finish: unknown = null, more: object = {}): void => {
    if (chance(0.1))
      events.push(pick([{ id: "c", choices: [] }, { choices: null }, ": keep-alive", "null", ""]));
    const role = chance(0.2) && { role: pick(["assistant", "", null]) };
    const index = chance() ? { index: 0 } : chance() ? { index: "0" } : {};
    const full = delta === undefined ? {} : { delta: { ...(delta as object), ...role } };
    events.push({
      id: "c",
      ...runningCounts,
      choices: [{ ...index, ...full, finish_reason: finish }],
      ...more,
    });
  };
  const reasoningName = pick(REASONING_NAMES);
  const isMirrored = chance();
  const indexed = pick<(at: number) => object>([
    (at) => ({ index: at }),
    (at) => ({ index: String(at) }),
    (at) => ({ index: at * 2 + 1 }),
    () => ({ index: 0 }),
    () => ({}),
  ]);
  let callAt = 0;
  for (const block of blocks) {
    if (block.kind === "call") {
      const at = callAt++;
      const place = indexed(at);
      const call = (named: object, args: unknown, head: boolean): object => ({
        tool_calls: [
          {
            ...place,
            ...(head && { id: `id_${at}`, type: "function" }),
            function: { ...named, arguments: args },
          },
        ],
      });
      const text = JSON.stringify(block.args);
      const form = pick(["object", "whole", "pieces", "pieces"]);
      if (form === "pieces") {
        add(call({ name: block.name }, pick(["", null, "{}", {}]), true));
        for (const piece of pieces(text, random)) add(call(chance(0.2) ? { name: "" } : {}, piece, false));
      } else add(call({ name: block.name }, form === "object" ? block.args : text, true));
    } else {
      for (const piece of pieces(block.text, random)) {
        if (block.kind === "text")
          add({
            content: chance(0.2) ? [{ type: "text", text: piece }] : piece,
            ...(chance(0.2) && { tool_calls: null }),
          });
        else
          add({
            [reasoningName]: piece,
            content: pick([null, ""]),
            ...(isMirrored && { reasoning_details: [{ type: "reasoning.text", text: piece }] }),
          });
      }
    }
  }
  const endsAt = events.length;
  const finish = callAt > 0 && end === "stop" ? pick(["tool_calls", "stop", "function_call"]) : end;
  const where = pick(["with", "after"]);
  add(pick([{}, null, undefined]), finish, where === "with" ? { usage: counts } : {});
  if (chance(0.3)) add({}, finish, where === "with" ? { usage: counts } : {});
  if (where === "after") events.push({ id: "c", choices: pick([[], null]), usage: counts });
  if (chance(0.7)) events.push(pick(["[DONE]", " [DONE] ", '"[DONE]"']));
  return { events: sseEvents(events, random), endsAt };
}

function writeResponses({ blocks, end, usage }: Answer, random: Random): WrittenAnswer {
  const { chance, pick } = draws(random);
  const events: TypedEvent[] = [{ type: "response.created", response: { id: "r", status: "in_progress" } }];
  const shared = chance(0.3); // one place for all items
  blocks.forEach((block, at) => {
    const place = shared ? 0 : at;
    const id = `item_${at}`;
    const about = { output_index: place, item_id: id, content_index: 0, summary_index: 0 };
    const add = (type: string, more: object): void =>
      void events.push({ type: `response.${type}`, ...about, ...more });
    const [start, whole] = responseItem(block, id, at);
    const isLazy = chance(0.2); // nothing but the finished item
    if (!isLazy) {
      add("output_item.added", { item: start });
      const [delta, text] = deltaOf(block);
      for (const piece of pieces(text, random)) add(`${delta}.delta`, { delta: piece });
      if (chance()) add(`${delta}.done`, block.kind === "call" ? { arguments: text } : { text });
    }
    if (chance(0.1)) events.push({ type: "response.unknown_item.delta", output_index: place });
    add("output_item.done", { item: whole });
  });
  const endsAt = events.length;
  const status = end === "length" ? "incomplete" : "completed";
  const response = {
    ...{ id: "r", status, usage: { input_tokens: usage.input, output_tokens: usage.output } },
    ...(end === "length" && { incomplete_details: { reason: "max_output_tokens" } }),
    ...(chance() && { output: blocks.map((block, at) => responseItem(block, `item_${at}`, at)[1]) }),
  };
  events.push({ type: pick([`response.${status}`, "response.done"]), response });
  return { events: namedEvents(events, random), endsAt };
}

function deltaOf(block: AnswerBlock): [delta: string, text: string] {
  if (block.kind === "call") return ["function_call_arguments", JSON.stringify(block.args)];
  return [block.kind === "text" ? "output_text" : "reasoning_summary_text", block.text];
}

function responseItem(block: AnswerBlock, id: string, at: number): [start: object, whole: object] {
  if (block.kind === "call") {
    const start = {
      type: "function_call",
      id,
      call_id: `id_${at}`,
      name: block.name,
      status: "in_progress",
      arguments: "",
    };
    return [start, { ...start, status: "completed", arguments: JSON.stringify(block.args) }];
  }
  if (block.kind === "reasoning") {
    const start = { type: "reasoning", id, summary: [] };
    return [start, { ...start, summary: [{ type: "summary_text", text: block.text }] }];
  }
  const start = { type: "message", id, role: "assistant", content: [] };
  return [start, { ...start, content: [{ type: "output_text", text: block.text, annotations: [] }] }];
}

function writeAnthropic({ blocks, end, usage }: Answer, random: Random): WrittenAnswer {
  const { chance, pick } = draws(random);
  const atStart = { input_tokens: usage.input, output_tokens: 1 };
  const events: TypedEvent[] = [{ type: "message_start", message: { id: "m", content: [], usage: atStart } }];
  blocks.forEach((block, at) => {
    const index = pick<unknown>([at, String(at)]);
    const add = (type: string, more: object): void => {
      if (chance(0.1)) events.push({ type: pick(["ping", "unknown_event"]) });
      events.push({ type: `content_block_${type}`, index, ...more });
    };
    const delta = (of: object): void => add("delta", { delta: of });
    if (block.kind === "call") {
      const isWhole = chance(0.3);
      const input = isWhole ? pick([block.args, JSON.stringify(block.args)]) : {};
      add("start", { content_block: { type: "tool_use", id: `id_${at}`, name: block.name, input } });
      if (!isWhole)
        for (const piece of ["", ...pieces(JSON.stringify(block.args), random)])
          delta({ type: "input_json_delta", partial_json: piece });
    } else {
      const [type, member] = block.kind === "text" ? ["text", "text"] : ["thinking", "thinking"];
      const [first = "", ...rest] = chance()
        ? pieces(block.text, random)
        : ["", ...pieces(block.text, random)];
      add("start", { content_block: { type, [member]: first } });
      for (const piece of rest) delta({ type: `${type}_delta`, [member]: piece });
      if (block.kind === "reasoning" && chance()) delta({ type: "signature_delta", signature: "c2ln" });
    }
    if (chance(0.9)) add("stop", {});
  });
  const endsAt = events.length;
  const calls = blocks.some(({ kind }) => kind === "call");
  const stop =
    end === "length" ? "max_tokens" : calls ? "tool_use" : pick(["end_turn", "stop_sequence", "pause_turn"]);
  events.push({
    type: "message_delta",
    delta: { stop_reason: stop },
    usage: { output_tokens: usage.output },
  });
  if (chance(0.8)) events.push({ type: "message_stop" });
  return { events: namedEvents(events, random), endsAt };
}

function writeGemini({ blocks, end, usage }: Answer, random: Random): WrittenAnswer {
  const { chance, pick } = draws(random);
  const counts = { usageMetadata: { promptTokenCount: usage.input, candidatesTokenCount: usage.output } };
  const chunk = (parts: readonly object[], more: object = {}): object => ({
    candidates: [{ content: { role: "model", parts }, ...(chance() && { index: 0 }), ...more }],
    ...(chance(0.3) && counts),
  });
  const events = blocks.flatMap((block): object[] => {
    if (block.kind === "call") {
      const args = pick<unknown>([block.args, JSON.stringify(block.args)]);
      return [
        chunk([{ functionCall: { name: block.name, args }, ...(chance() && { thoughtSignature: "c2ln" }) }]),
      ];
    }
    const thought = block.kind === "reasoning" && { thought: true };
    return pieces(block.text, random).map((text) => chunk([{ text, ...thought }]));
  });
  const endsAt = events.length;
  events.push({ ...chunk([], { finishReason: end === "length" ? "MAX_TOKENS" : "STOP" }), ...counts });
  return { events: sseEvents(events, random), endsAt };
}

function writeOllama({ blocks, end, usage }: Answer, random: Random): WrittenAnswer {
  const { chance, pick } = draws(random);
  const lines = blocks.flatMap((block): object[] => {
    if (block.kind === "call") {
      const args = pick<unknown>([block.args, JSON.stringify(block.args)]);
      return [
        {
          message: { content: "", tool_calls: [{ function: { name: block.name, arguments: args } }] },
          done: false,
        },
      ];
    }
    const member = block.kind === "text" ? "content" : "thinking";
    return pieces(block.text, random).map((text) => ({
      message: { role: "assistant", content: "", [member]: text },
    }));
  });
  const endsAt = lines.length;
  lines.push({ done: true, done_reason: end, prompt_eval_count: usage.input, eval_count: usage.output });
  const lineEnd = pick(["\n", "\r\n", "\n\n"]);
  const isSse = chance(0.3); // a relay
  const events = isSse
    ? sseEvents(lines, random)
    : lines.map((line, at) =>
        Buffer.from(`${json(line, random)}${at === endsAt && chance() ? "" : lineEnd}`),
      );
  return { events, endsAt };
}

function writeCohere({ blocks, end, usage }: Answer, random: Random): WrittenAnswer {
  const { chance, pick } = draws(random);
  const events: TypedEvent[] = [{ type: "message-start", id: "m" }];
  blocks.forEach((block, index) => {
    const add = (type: string, message: object): void =>
      void events.push({ type, index, delta: { message } });
    const wrap = (value: object): unknown => (chance(0.2) ? [value] : value);
    if (block.kind === "call") {
      const text = JSON.stringify(block.args);
      const isObject = chance(0.2);
      const head = { name: block.name, arguments: isObject ? block.args : "" };
      add("tool-call-start", { tool_calls: wrap({ id: `id_${index}`, type: "function", function: head }) });
      if (!isObject)
        for (const piece of pieces(text, random))
          add("tool-call-delta", { tool_calls: wrap({ function: { arguments: piece } }) });
      add("tool-call-end", {});
    } else {
      const member = block.kind === "text" ? "text" : "thinking";
      add("content-start", { content: { type: member, [member]: "" } });
      for (const piece of pieces(block.text, random))
        add("content-delta", { content: wrap({ [member]: piece }) });
      add("content-end", {});
    }
  });
  const endsAt = events.length;
  const calls = blocks.some(({ kind }) => kind === "call");
  const finish = end === "length" ? "MAX_TOKENS" : calls ? "TOOL_CALL" : pick(["COMPLETE", "STOP_SEQUENCE"]);
  const tokens = { input_tokens: usage.input, output_tokens: usage.output };
  events.push({ type: "message-end", delta: { finish_reason: finish, usage: { tokens } } });
  return { events: namedEvents(events, random), endsAt };
}

function writeBedrock({ blocks, end, usage }: Answer, random: Random): WrittenAnswer {
  const { chance, pick } = draws(random);
  const events: Buffer[] = [converseEvent("messageStart", { role: "assistant" })];
  blocks.forEach((block, contentBlockIndex) => {
    const add = (type: string, more: object): void =>
      void events.push(converseEvent(`contentBlock${type}`, { contentBlockIndex, ...more }));
    if (block.kind === "call") {
      add("Start", { start: { toolUse: { toolUseId: `id_${contentBlockIndex}`, name: block.name } } });
      const input = chance(0.2) ? [block.args] : pieces(JSON.stringify(block.args), random);
      for (const piece of input) add("Delta", { delta: { toolUse: { input: piece } } });
    } else {
      for (const text of pieces(block.text, random))
        add("Delta", { delta: block.kind === "text" ? { text } : { reasoningContent: { text } } });
      if (block.kind === "reasoning" && chance())
        add("Delta", { delta: { reasoningContent: { signature: "c2ln" } } });
    }
    add("Stop", {});
  });
  const endsAt = events.length;
  const calls = blocks.some(({ kind }) => kind === "call");
  const stopReason =
    end === "length" ? "max_tokens" : calls ? "tool_use" : pick(["end_turn", "stop_sequence"]);
  events.push(converseEvent("messageStop", { stopReason }));
  events.push(converseEvent("metadata", { usage: { inputTokens: usage.input, outputTokens: usage.output } }));
  return { events, endsAt };
}

type TypedEvent = Readonly<Record<string, unknown>> & { readonly type: string };

function namedEvents(events: readonly TypedEvent[], random: Random): Buffer[] {
  const { chance, pick } = draws(random);
  const hasNames = chance(0.7);
  const lineEnd = pick(["\n", "\r\n", "\r"]);
  return events.map((event) => {
    const name = hasNames ? [`event: ${event.type}`] : [];
    return Buffer.from([...name, `data: ${json(event, random)}`, "", ""].join(lineEnd));
  });
}

function sseEvents(events: readonly (object | string)[], random: Random): Buffer[] {
  const { chance, pick } = draws(random);
  const lineEnd = pick(["\n", "\r\n", "\r"]);
  const field = pick(["data: ", "data:", "data: data: "]);
  return events.map((event) => {
    const noise = chance(0.1) ? [pick([": comment", "id: 7", "retry: 9", "event: message"])] : [];
    const line =
      typeof event === "string" && event.startsWith(":") ? event : `${field}${textOf(event, random)}`;
    return Buffer.from([...noise, line, "", ""].join(lineEnd));
  });
}

function textOf(event: object | string, random: Random): string {
  return typeof event === "string" ? event : json(event, random);
}

/** JSON as one server or another writes it: halves of characters always as escapes. */
function json(value: object, random: Random): string {
  const text = JSON.stringify(value);
  if (random() < 0.7) return text;
  return text.replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** A text in one piece or several, cut anywhere, also inside of a character. */
function pieces(text: string, random: Random): string[] {
  const list: string[] = [];
  for (let at = 0; at < text.length;) {
    const size = random() < 0.3 ? text.length : 1 + Math.floor(random() * 6);
    list.push(text.slice(at, at + size));
    at += size;
  }
  return list;
}

function draws(random: Random): {
  readonly chance: (probability?: number) => boolean;
  readonly pick: <T>(items: readonly T[]) => T;
} {
  return {
    chance: (probability = 0.5) => random() < probability,
    pick: (items) => items[Math.floor(random() * items.length)]!,
  };
}
