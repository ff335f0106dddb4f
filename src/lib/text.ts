/** Cutting text without breaking a character. */

/** At most `maxChars` UTF-16 units of `text`, never ending in half a surrogate pair. */
export function cutChars(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const last = text.charCodeAt(maxChars - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? maxChars - 1 : maxChars);
}

/** At most `maxBytes` of `text` in UTF-8, cut at a code point. */
export function cutBytes(text: string, maxBytes: number): string {
  if (text.length * 3 <= maxBytes) return text;
  const bytes = Buffer.from(text, "utf8");
  if (bytes.length <= maxBytes) return text;
  let end = maxBytes;
  while (end > 0 && (bytes[end]! & 0xc0) === 0x80) end--;
  return bytes.toString("utf8", 0, end);
}

/**
 * Shares `total` fairly: nobody gets more than it wants, and what small ones leave goes to the large ones. The order of
 * the shares is the order of the wishes.
 */
export function shareFairly(wishes: readonly number[], total: number): number[] {
  const shares = wishes.map(() => 0);
  let open = wishes.map((_, index) => index).sort((a, b) => wishes[a]! - wishes[b]!);
  let left = total;
  while (open.length > 0) {
    const index = open[0]!;
    const share = Math.min(wishes[index]!, Math.floor(left / open.length));
    shares[index] = share;
    left -= share;
    open = open.slice(1);
  }
  return shares;
}

/** The text with U+FFFD in place of each half of a surrogate pair that stands alone. */
export function wellFormed(text: string): string {
  return text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
}
