/**
 * From bytes of the web to text: byte order mark, then the header, then the zeros of UTF-16, then what the page says of
 * itself, then a guess.
 */

/** How much of a page is searched for its own charset declaration, bytes (as browsers do). */
const PRESCAN_BYTES = 1024;

/**
 * Decodes. `contentType` is the header's value; `prescan` looks for an HTML or XML declaration in the first bytes. Never
 * throws: what cannot be decoded becomes the replacement character.
 */
export function decodeText(bytes: Uint8Array, contentType: string, prescan: boolean): string {
  const label = labelOf(bytes, contentType) ?? (prescan ? declaredCharset(bytes) : undefined);
  const decoder = label === undefined ? undefined : decoderFor(label);
  if (decoder) return decoder.decode(bytes);
  return decodeUtf8(bytes) ?? new TextDecoder("windows-1252").decode(bytes);
}

/** The charset that a byte order mark, the Content-Type header or the zeros of UTF-16 name; undefined = none does. */
export function labelOf(bytes: Uint8Array, contentType: string): string | undefined {
  return bomLabel(bytes) ?? charsetOf(contentType) ?? wideLabel(bytes);
}

/** Looked at for zeros, bytes. */
const WIDE_SAMPLE_BYTES = 4_096;
const CONTROLS = /[\u0000-\u0008\u000e-\u001f\ufffd-\uffff]/;

/**
 * UTF-16 without a byte order mark: zeros stand on one side of the pairs only, often if the text is Latin, seldom if it is
 * not, and what is read so has no control characters.
 */
export function wideLabel(bytes: Uint8Array): "utf-16le" | "utf-16be" | undefined {
  const sample = bytes.subarray(0, Math.min(bytes.length, WIDE_SAMPLE_BYTES) & ~1);
  let [even, odd] = [0, 0];
  for (let at = 0; at < sample.length; at += 2) {
    if (sample[at] === 0) even++;
    if (sample[at + 1] === 0) odd++;
  }
  if ((even === 0) === (odd === 0)) return undefined;
  const seldom = (even + odd) * 8 < sample.length;
  if (seldom && decodeUtf8(sample) !== undefined) return undefined; // a stray zero in UTF-8
  const label = odd > 0 ? "utf-16le" : "utf-16be";
  const text = new TextDecoder(label).decode(sample, { stream: true });
  return CONTROLS.test(text) ? undefined : label;
}

function bomLabel(bytes: Uint8Array): string | undefined {
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) return "utf-8";
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return "utf-16be";
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return "utf-16le";
  return undefined;
}

function charsetOf(text: string): string | undefined {
  return /charset\s{0,8}=\s{0,8}["']?([\w.:+-]{1,40})/i.exec(text)?.[1];
}

function declaredCharset(bytes: Uint8Array): string | undefined {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.length, PRESCAN_BYTES)).toString(
    "latin1",
  );
  const label =
    charsetOf(head) ?? /^<\?xml[^>]{0,200}encoding\s{0,8}=\s{0,8}["']([\w.:+-]{1,40})/i.exec(head)?.[1];
  // A declaration that could be read as ASCII cannot be in UTF-16.
  return label && /^utf-?16/i.test(label) ? "utf-8" : label;
}

function decoderFor(label: string): { decode(bytes: Uint8Array): string } | undefined {
  try {
    return new TextDecoder(label);
  } catch {
    return undefined; // a label nobody knows: guess instead
  }
}

/** undefined when the bytes are not UTF-8. A character cut off at the end does not count. */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
  } catch {
    return undefined; // not UTF-8: the caller has a fallback
  }
}
