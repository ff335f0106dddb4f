/**
 * Keeps keys out of what a model says: an upstream may echo the request it got, headers included. F1 a key never comes out
 * whole, however it was cut. F2 text is held back only while its end may be the beginning of a key, from the fourth character
 * on. F3 what has no key in it stays as it is.
 */
import type { CompletionDelta } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";

const MASK = "[key]";
/** Shorter ones are no secrets, and would be found everywhere. */
const MIN_SECRET_CHARS = 8;
/** So much of a key's beginning is not recognised yet. */
const HEAD_CHARS = 4;

type TextCase = "content" | "reasoning" | "refusal" | "toolCall";

export class SecretFilter {
  readonly #secrets: readonly string[];
  /** The delta whose text is held back. */
  #held: CompletionDelta | undefined;
  /** The last characters that went out, which may be the beginning of a key. */
  #last = "";
  #channel = "";

  constructor(secrets: readonly string[]) {
    this.#secrets = secrets.filter(({ length }) => length >= MIN_SECRET_CHARS);
  }

  apply(deltas: CompletionDelta[]): CompletionDelta[] {
    if (this.#secrets.length === 0) return deltas;
    return deltas.flatMap((delta) => this.#applyOne(delta));
  }

  /** What is held back when nothing follows. */
  flush(): CompletionDelta[] {
    const held = this.#held;
    this.#held = undefined;
    this.#last = "";
    return held ? [held] : [];
  }

  #applyOne(delta: CompletionDelta): CompletionDelta[] {
    const text = textOf(delta);
    if (text === undefined) return [...this.flush(), this.#mask(delta)];
    if (text === "" && this.#held && !isLastOfCall(delta)) return [delta];
    const channel = channelOf(delta);
    const before = channel === this.#channel ? [] : this.flush();
    this.#channel = channel;
    const held = this.#held ? textOf(this.#held)! : "";
    this.#held = undefined;
    const [ready, waiting] = this.#split(held + text);
    const out = isLastOfCall(delta) ? ready + waiting : ready;
    if (out.length === ready.length && waiting !== "") this.#held = withText(delta, waiting);
    return out === "" && this.#held ? before : [...before, out === text ? delta : withText(delta, out)];
  }

  /** What of the text may go out, and what waits. */
  #split(text: string): readonly [out: string, keep: string] {
    let out = text;
    for (const secret of this.#secrets) {
      const whole = this.#last + out;
      const at = whole.indexOf(secret);
      if (at === -1) continue;
      const shown = Math.min(at, this.#last.length);
      out = (whole.slice(0, at) + MASK + whole.slice(at + secret.length).replaceAll(secret, MASK)).slice(
        shown,
      );
    }
    const whole = this.#last + out;
    const start = Math.min(...this.#secrets.map((secret) => beginsAt(whole, secret))) - this.#last.length;
    const keep = out.slice(Math.max(0, start));
    out = out.slice(0, out.length - keep.length);
    this.#last = (this.#last + out).slice(1 - HEAD_CHARS);
    return [out, keep];
  }

  /** Keys in the strings of all other deltas. */
  #mask(delta: CompletionDelta): CompletionDelta {
    const { case: kind, value } = delta.delta;
    if (kind === "providerState" || kind === "media" || kind === "usage" || value === undefined) return delta;
    const json = JSON.stringify(value, (_, member: unknown) => (typeof member === "bigint" ? 0 : member));
    if (!this.#secrets.some((secret) => json.includes(secret))) return delta;
    return {
      ...delta,
      delta: { case: kind, value: maskMembers(value, this.#secrets) } as CompletionDelta["delta"],
    };
  }
}

/** Where the end of the text may be the beginning of the secret; its length if nowhere. */
function beginsAt(text: string, secret: string): number {
  const head = secret.slice(0, HEAD_CHARS);
  let at = text.indexOf(head, Math.max(0, text.length - secret.length + 1));
  while (at !== -1 && !secret.startsWith(text.slice(at))) at = text.indexOf(head, at + 1);
  return at === -1 ? text.length : at;
}

function maskMembers(value: unknown, secrets: readonly string[]): unknown {
  if (typeof value === "string")
    return secrets.reduce((text, secret) => text.replaceAll(secret, MASK), value);
  if (Array.isArray(value)) return value.map((member) => maskMembers(member, secrets));
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return value;
  const members = Object.entries(value).map(
    ([name, member]) => [name, maskMembers(member, secrets)] as const,
  );
  return Object.fromEntries(members);
}

function textOf({ delta }: CompletionDelta): string | undefined {
  switch (delta.case) {
    case "content":
    case "reasoning":
      return delta.value.text;
    case "refusal":
      return delta.value;
    case "toolCall":
      return delta.value.argumentsFragment;
    default:
      return undefined;
  }
}

/** Texts of one channel follow one another. */
function channelOf({ delta }: CompletionDelta): string {
  const kind = delta.case as TextCase;
  return delta.case === "toolCall" ? `${kind}:${delta.value.blockIndex}` : kind;
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
