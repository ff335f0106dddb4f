/**
 * Keeps keys out of what a model says: an upstream may echo the request it got, headers included. Owns what is held back.
 * F1 a key never comes out whole, in no form that the matcher knows, however it was cut and whatever was said between its
 * pieces. F2 text is held back only while its end may be the beginning of a key, from the fourth character on: until more
 * text of its kind, or the end of the answer. F3 what has no key in it stays as it is.
 */
import type { CompletionDelta } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { addSpan, MASK, type MatchState, type SecretMatcher, type Span } from "./secret-matcher.js";

/** So much of a key's beginning is not recognised yet. */
const HEAD_CHARS = 4;

type TextCase = "content" | "reasoning" | "refusal" | "toolCall";

/** Texts that follow one another, whatever is between them. */
interface Channel {
  /** The delta whose text is held back. */
  held: CompletionDelta | undefined;
  /** Keys in what is held. */
  spans: Span[];
  /** The key that what is held begins with was told already: its mask went out. */
  told: boolean;
  /** What went out ends with a mask. */
  endsMasked: boolean;
  state: MatchState;
}

export class SecretFilter {
  readonly #matcher: SecretMatcher;
  readonly #channels = new Map<string, Channel>();

  constructor(matcher: SecretMatcher) {
    this.#matcher = matcher;
  }

  apply(deltas: readonly CompletionDelta[]): readonly CompletionDelta[] {
    if (this.#matcher.isEmpty) return deltas;
    return deltas.flatMap((delta) => this.#applyOne(delta));
  }

  /** What is held back when nothing follows. */
  flush(): CompletionDelta[] {
    const out = [...this.#channels.values()].flatMap((channel) => {
      if (!channel.held) return [];
      const text = textOf(channel.held);
      const shown = masked(text, channel, text.length);
      return shown === "" ? [] : [shown === text ? channel.held : withText(channel.held, shown)];
    });
    this.#channels.clear();
    return out;
  }

  #applyOne(delta: CompletionDelta): CompletionDelta[] {
    switch (delta.delta.case) {
      case "content":
      case "reasoning":
      case "refusal":
        return this.#applyText(delta);
      case "toolCall":
        return this.#applyText(this.#mask(delta)); // each delta has the whole id, and the name if any
      case "finish":
      case "error":
        return [...this.flush(), this.#mask(delta)];
      case "attemptBoundary":
        this.#channels.delete("reasoning"); // what an attempt that was given up has reasoned counts no more
        return [this.#mask(delta)];
      default:
        return [this.#mask(delta)];
    }
  }

  #applyText(delta: CompletionDelta): CompletionDelta[] {
    const text = textOf(delta);
    const isLast = isLastOfCall(delta);
    if (text === "" && !isLast) return [delta];
    const channel = this.#channelOf(delta);
    const { held } = channel;
    const heldText = held ? textOf(held) : "";
    this.#search(channel, text, heldText.length);
    if (isLast) this.#channels.delete(channelName(delta));
    const whole = heldText + text;
    const open = this.#matcher.depth(channel.state);
    const outChars = Math.max(0, whole.length - (isLast || open < HEAD_CHARS ? 0 : open));
    const hasKey = channel.told || channel.spans.length > 0;
    // What was held stays in its own block, if it was no key.
    const apart =
      held && blockOf(held) !== blockOf(delta) && outChars >= heldText.length && !isIn(heldText, channel);
    const out = hasKey ? masked(whole, channel, outChars) : whole.slice(0, outChars);
    if (!hasKey && outChars > 0) channel.endsMasked = false;
    channel.held = outChars < whole.length ? withText(delta, whole.slice(outChars)) : undefined;
    const before = apart ? [held] : [];
    const rest = apart ? out.slice(heldText.length) : out;
    return rest === "" && channel.held ? before : [...before, rest === text ? delta : withText(delta, rest)];
  }

  /** Looks through the text, which follows `offset` characters that are held. */
  #search(channel: Channel, text: string, offset: number): void {
    const matcher = this.#matcher;
    let { state } = channel;
    for (let at = 0; at < text.length; at++) {
      state = matcher.step(state, text.charCodeAt(at));
      const length = state === 0 ? 0 : matcher.found(state);
      if (length === 0) continue;
      const end = offset + at + 1;
      if (end < length && channel.endsMasked) channel.told = true; // it overlaps the one that went out
      addSpan(channel.spans, { start: Math.max(0, end - length), end });
    }
    channel.state = state;
  }

  #channelOf(delta: CompletionDelta): Channel {
    const name = channelName(delta);
    let channel = this.#channels.get(name);
    if (!channel)
      this.#channels.set(
        name,
        (channel = { held: undefined, spans: [], told: false, endsMasked: false, state: 0 }),
      );
    return channel;
  }

  /** Keys in the strings of a delta, whole ones. */
  #mask(delta: CompletionDelta): CompletionDelta {
    if (delta.delta.case === "providerState") return delta; // goes back to the provider alone
    if (delta.delta.case !== "toolCall") return maskMembers(delta, this.#matcher) as CompletionDelta;
    const { callId, name } = delta.delta.value;
    const ids = { callId: this.#matcher.mask(callId), name: this.#matcher.mask(name) };
    if (ids.callId === callId && ids.name === name) return delta;
    return { ...delta, delta: { case: "toolCall", value: { ...delta.delta.value, ...ids } } };
  }
}

/** The first `length` characters with the channel's keys masked; the keys beyond stay, counted from there. */
function masked(text: string, channel: Channel, length: number): string {
  if (length === 0) return "";
  const later: Span[] = [];
  let out = "";
  let done = 0;
  let { told } = channel;
  channel.told = false;
  for (const { start, end } of channel.spans) {
    if (start >= length) {
      later.push({ start: start - length, end: end - length });
      continue;
    }
    out += text.slice(done, start) + (told ? "" : MASK);
    told = false;
    done = Math.min(end, length);
    if (end <= length) continue;
    channel.told = true;
    later.push({ start: 0, end: end - length });
  }
  channel.spans = later;
  channel.endsMasked = done === length;
  return out + text.slice(done, length);
}

/** Whether a key stands in the beginning of the text. */
function isIn(beginning: string, { spans, told }: Channel): boolean {
  return told || (spans.length > 0 && spans[0]!.start < beginning.length);
}

/** The value itself if no secret is in it. */
function maskMembers(value: unknown, matcher: SecretMatcher): unknown {
  if (typeof value === "string") return matcher.mask(value);
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return value;
  const members = Object.entries(value);
  const maskedMembers = members.map(([name, member]) => [name, maskMembers(member, matcher)] as const);
  if (maskedMembers.every(([, member], at) => member === members[at]![1])) return value;
  return Array.isArray(value) ? maskedMembers.map(([, member]) => member) : Object.fromEntries(maskedMembers);
}

function textOf({ delta }: CompletionDelta): string {
  switch (delta.case) {
    case "content":
    case "reasoning":
      return delta.value.text;
    case "refusal":
      return delta.value;
    case "toolCall":
      return delta.value.argumentsFragment;
    default:
      return "";
  }
}

function channelName({ delta }: CompletionDelta): string {
  const kind = delta.case as TextCase;
  return delta.case === "toolCall" ? `${kind}:${delta.value.blockIndex}` : kind;
}

function blockOf({ delta }: CompletionDelta): number {
  return delta.case === "content" || delta.case === "reasoning" ? delta.value.blockIndex : 0;
}

/** Nothing follows the last piece of a call's arguments. */
function isLastOfCall({ delta }: CompletionDelta): boolean {
  return delta.case === "toolCall" && (delta.value.complete || delta.value.argumentsInvalid);
}

function withText(whole: CompletionDelta, text: string): CompletionDelta {
  const { delta } = whole;
  switch (delta.case) {
    case "content":
      return { ...whole, delta: { case: delta.case, value: { ...delta.value, text } } };
    case "reasoning":
      return { ...whole, delta: { case: delta.case, value: { ...delta.value, text } } };
    case "refusal":
      return { ...whole, delta: { case: delta.case, value: text } };
    case "toolCall":
      return { ...whole, delta: { case: delta.case, value: { ...delta.value, argumentsFragment: text } } };
    default:
      return whole;
  }
}
