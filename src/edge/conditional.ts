/** Conditional requests on what has a strong tag (RFC 9110, 13.1). `etag` is quoted. */

/** Whether If-None-Match names this content: `*`, or a list whose tags may be weak. */
export function noneMatchFails(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  if (header.trim() === "*") return true;
  return header.match(/"[^"]*"/g)?.includes(etag) ?? false;
}

/** Whether a Range counts: If-Range must be this very tag; a weak one, another or a date asks for the whole. */
export function rangeApplies(ifRange: string | undefined, etag: string): boolean {
  return ifRange === undefined || ifRange.trim() === etag;
}
