/**
 * Joins surrogate pairs that a provider cut in two. JSON may escape half an emoji in one delta and the rest in the next;
 * protobuf strings refuse a lone half. One instance per text that is being streamed.
 */
export class SurrogateJoiner {
  #held = "";

  /** The text that is certain now: a high half at its end waits for its mate, a lone half elsewhere becomes U+FFFD. */
  push(text: string): string {
    if (text === "") return "";
    let joined = this.#held === "" ? text : this.#held + text;
    this.#held = "";
    const last = joined.charCodeAt(joined.length - 1);
    if (last >= 0xd800 && last <= 0xdbff) {
      this.#held = joined.slice(-1);
      joined = joined.slice(0, -1);
    }
    return LONE_SURROGATE.test(joined) ? joined.replace(LONE_SURROGATES, "\ufffd") : joined;
  }

  /** What a half that never found its mate becomes. */
  flush(): string {
    if (this.#held === "") return "";
    this.#held = "";
    return "\ufffd";
  }
}

const LONE_SURROGATE = /\p{Surrogate}/u;
const LONE_SURROGATES = /\p{Surrogate}/gu;

/** The text in pieces of at most `maxChars` (two or more) UTF-16 units, cut only between code points. */
export function splitText(text: string, maxChars: number): string[] {
  if (text.length <= maxChars) return [text];
  const pieces: string[] = [];
  let start = 0;
  while (start < text.length) {
    let stop = Math.min(start + maxChars, text.length);
    const last = text.charCodeAt(stop - 1);
    if (stop < text.length && last >= 0xd800 && last <= 0xdbff) stop--;
    pieces.push(text.slice(start, stop));
    start = stop;
  }
  return pieces;
}
