/**
 * A snapshot of Postgres (`xmin:xmax:xip,xip`) in few characters: a number in base 36, then distances from it. With very
 * many open transactions it is widened to "nothing from xmin on was visible": some events are then told twice, none is lost.
 */

/** Longest packed form. A token of it stays within the 1,024 bytes that a request may carry. */
const MAX_CHARS = 640;

export function packSnapshot(snapshot: string): string {
  const [xmin, xmax, xip] = snapshot.split(":") as [string, string, string];
  const base = BigInt(xmin);
  const distance = (xid: string): string => (BigInt(xid) - base).toString(36);
  const running = xip === "" ? [] : xip.split(",").map(distance);
  const packed = [base.toString(36), distance(xmax), ...running].join(".");
  return packed.length <= MAX_CHARS ? packed : `${base.toString(36)}.0`;
}

export function unpackSnapshot(packed: string): string {
  const [base, ...distances] = packed.split(".").map(fromBase36) as [bigint, ...bigint[]];
  const [xmax, ...running] = distances.map((distance) => base + distance);
  return `${base}:${xmax}:${running.join(",")}`;
}

function fromBase36(text: string): bigint {
  let value = 0n;
  for (const digit of text) value = value * 36n + BigInt(Number.parseInt(digit, 36));
  return value;
}
