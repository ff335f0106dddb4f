/** Which addresses a text that we did not write may lead to. */

const SAFE_PROTOCOLS: ReadonlySet<string> = new Set(["http:", "https:", "mailto:"]);
/** Stands for the page itself; the name can never exist. */
const BASE = "https://relative.invalid";

/** The address to put into a link; undefined = shown as text. Never a script, a data address or a file. */
export function safeUrl(href: string): string | undefined {
  if (!URL.canParse(href, BASE)) return undefined;
  const url = new URL(href, BASE);
  if (!SAFE_PROTOCOLS.has(url.protocol)) return undefined;
  return url.origin === BASE ? `${url.pathname}${url.search}${url.hash}` : url.href;
}

/** The host of an address, for people; empty if it has none. */
export function hostOf(href: string): string {
  return URL.canParse(href) ? new URL(href).host : "";
}
