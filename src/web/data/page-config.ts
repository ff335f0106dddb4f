/** What the service tells the page about itself, in its index.html. */
export interface PageConfig {
  /** Which log carries the running turns, for people. */
  readonly log: string;
  /** Which database keeps the rest, for people. */
  readonly store: string;
  /** "token": the user signs in with a bearer token. */
  readonly auth: "token" | "none";
}

declare const __TURNWIRE_VERSION__: string;

export const PAGE_VERSION = __TURNWIRE_VERSION__;

/** Reads it; a page that some other server delivers says nothing. */
export function readPageConfig(): PageConfig {
  const text = document.querySelector<HTMLMetaElement>("meta[name=turnwire-config]")?.content ?? "";
  try {
    return JSON.parse(text) as PageConfig;
  } catch {
    return { log: "unknown", store: "unknown", auth: "token" }; // the slot was not filled
  }
}
