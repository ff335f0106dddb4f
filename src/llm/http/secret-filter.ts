/**
 * Keeps keys out of what a model says: an upstream may echo the request it got, headers included. Owns what is held back.
 * F1 a key never comes out whole, however it was cut and whatever was said between its pieces. F2 text is held back only
 * while its end may be the beginning of a key, from the fourth character on: until more text of its kind, or the end of
 * the answer. F3 what has no key in it stays as it is.
 */
import type { CompletionDelta } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";

const MASK = "[key]";
/** Shorter ones are no secrets, and would be found everywhere. */
const MIN_SECRET_CHARS = 8;
/** So much of a key's beginning is not recognised yet. */
const HEAD_CHARS = 4;

type TextCase = "content" | "reasoning" | "refusal" | "toolCall";

/** Texts that follow one another, whatever is between them. */
interface Channel {
  /** The delta whose text is held back. */
  held: CompletionDelta | undefined;
  /** The last characters that went out, which may be the beginning of a key. */
  last: string;
}

export class SecretFilter {
  readonly #secrets: readonly string[];
  readonly #channels = new Map<string, Channel>();

  constructor(secrets: readonly string[]) {
    this.#secrets = secrets.filter(({ length }) => length >= MIN_SECRET_CHARS);
  }

  apply(deltas: readonly CompletionDelta[]): readonly CompletionDelta[] {
    if (this.#secrets.length === 0) return deltas;
    return deltas.flatMap((delta) => this.#applyOne(delta));
  }

  /** What is held back when nothing follows. */
  flush(): CompletionDelta[] {
    const held = [...this.#channels.values()].flatMap((channel) => channel.held ?? []);
    this.#channels.clear();
    return held;
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
        this.#dropReasoning();
        return [this.#mask(delta)];
      default:
        return [this.#mask(delta)];
    }
  }

  #applyText(delta: CompletionDelta): CompletionDelta[] {
    const text = textOf(delta);
    const channel = this.#channelOf(delta);
    const { held } = channel;
    const isLast = isLastOfCall(delta);
    if (text === "" && !isLast) return [delta];
    const heldText = held ? textOf(held) : "";
    const [ready, waiting] = this.#split(channel, heldText + text);
    channel.held = waiting === "" || isLast ? undefined : withText(delta, waiting);
    if (isLast) this.#channels.delete(channelName(delta));
    const whole = isLast ? ready + waiting : ready;
    // What was held stays in its own block, if it was no key.
    const apart = held && blockOf(held) !== blockOf(delta) && ready.startsWith(heldText);
    const before = apart ? [held] : [];
    const out = apart ? whole.slice(heldText.length) : whole;
    return out === "" && channel.held ? before : [...before, out === text ? delta : withText(delta, out)];
  }

  /** What an attempt that was given up has reasoned counts no more. */
  #dropReasoning(): void {
    const channel = this.#channels.get("reasoning");
    if (channel) channel.held = undefined;
  }

  #channelOf(delta: CompletionDelta): Channel {
    const name = channelName(delta);
    let channel = this.#channels.get(name);
    if (!channel) this.#channels.set(name, (channel = { held: undefined, last: "" }));
    return channel;
  }

  /** What of the text may go out, and what waits. */
  #split(channel: Channel, text: string): readonly [out: string, keep: string] {
    const { last } = channel;
    let out = text;
    for (const secret of this.#secrets) {
      const whole = last + out;
      const at = whole.indexOf(secret);
      if (at === -1) continue;
      const shown = Math.min(at, last.length);
      out = (whole.slice(0, at) + MASK + whole.slice(at + secret.length).replaceAll(secret, MASK)).slice(
        shown,
      );
    }
    const whole = last + out;
    const start = Math.min(...this.#secrets.map((secret) => beginsAt(whole, secret))) - last.length;
    const keep = out.slice(Math.max(0, start));
    out = out.slice(0, out.length - keep.length);
    channel.last = (last + out).slice(1 - HEAD_CHARS);
    return [out, keep];
  }

  /** Keys in the strings of a delta, whole ones. */
  #mask(delta: CompletionDelta): CompletionDelta {
    if (delta.delta.case === "providerState") return delta; // goes back to the provider alone
    return maskMembers(delta, this.#secrets) as CompletionDelta;
  }
}

/** Where the end of the text may be the beginning of the secret; its length if nowhere. */
function beginsAt(text: string, secret: string): number {
  const head = secret.slice(0, HEAD_CHARS);
  let at = text.indexOf(head, Math.max(0, text.length - secret.length + 1));
  while (at !== -1 && !secret.startsWith(text.slice(at))) at = text.indexOf(head, at + 1);
  return at === -1 ? text.length : at;
}

/** The value itself if no secret is in it. */
function maskMembers(value: unknown, secrets: readonly string[]): unknown {
  if (typeof value === "string")
    return secrets.reduce((text, secret) => text.replaceAll(secret, MASK), value);
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return value;
  const members = Object.entries(value);
  const masked = members.map(([name, member]) => [name, maskMembers(member, secrets)] as const);
  if (masked.every(([, member], at) => member === members[at]![1])) return value;
  return Array.isArray(value) ? masked.map(([, member]) => member) : Object.fromEntries(masked);
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
