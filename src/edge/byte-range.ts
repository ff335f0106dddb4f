/** Bytes of a file: `start` to `end`, exclusive. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/**
 * A Range header over a file of `size` bytes. undefined = the whole file: no header, another unit, or several ranges, which
 * a server may ignore (RFC 9110, 14.2).
 */
export function parseRange(
  header: string | undefined,
  size: number,
): ByteRange | "unsatisfiable" | undefined {
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.trim() ?? "");
  if (!match || (match[1] === "" && match[2] === "")) return undefined;
  const [first, last] = [match[1]!, match[2]!];
  if (first === "") {
    const start = Math.max(0, size - Number(last));
    return start < size ? { start, end: size } : "unsatisfiable";
  }
  const start = Number(first);
  if (last !== "" && Number(last) < start) return undefined; // not valid: as if it was not there
  if (start >= size) return "unsatisfiable";
  return { start, end: last === "" ? size : Math.min(size, Number(last) + 1) };
}
