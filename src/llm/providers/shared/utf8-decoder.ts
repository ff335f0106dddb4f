/** UTF-8 in pieces. Does what a streaming TextDecoder does, in a fraction of its time. */

/** Decodes one body: a character cut in two comes out with its second half, broken bytes as U+FFFD, a BOM at the start never. */
export class Utf8Decoder {
  /** The bytes of a character whose rest is still to come. */
  #held: Buffer | undefined;
  #atStart = true;

  push(bytes: Uint8Array): string {
    let buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    if (this.#held) {
      buffer = Buffer.concat([this.#held, buffer]);
      this.#held = undefined;
    }
    const open = openBytes(buffer);
    if (open > 0) {
      this.#held = Buffer.from(buffer.subarray(buffer.length - open));
      buffer = buffer.subarray(0, buffer.length - open);
    }
    return this.#withoutBom(buffer.toString("utf8"));
  }

  /** What the end of the body cut off. */
  end(): string {
    const rest = this.#held?.toString("utf8") ?? "";
    this.#held = undefined;
    return this.#withoutBom(rest);
  }

  #withoutBom(text: string): string {
    if (!this.#atStart || text === "") return text;
    this.#atStart = false;
    return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  }
}

/** How many bytes at the end begin a character that is longer. */
function openBytes(bytes: Uint8Array): number {
  const { length } = bytes;
  for (let back = 1; back <= 3 && back <= length; back++) {
    const byte = bytes[length - back] ?? 0;
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue; // a continuation: its lead byte stands before it
    const needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return needed > back ? back : 0;
  }
  return 0;
}
