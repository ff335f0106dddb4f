/** Where the page is, kept in the address behind the #: reload, back and bookmarks work, and the server sees nothing of it. */
import { useSyncExternalStore } from "react";

export type Route =
  | { readonly page: "new" }
  | { readonly page: "session"; readonly sessionId: string; readonly messageId: string }
  | { readonly page: "documents" }
  | { readonly page: "document"; readonly documentId: string; readonly at: number | undefined };

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page, id] = path.split("/").map(decode);
  const params = new URLSearchParams(query);
  if (page === "c" && id) return { page: "session", sessionId: id, messageId: params.get("m") ?? "" };
  if (page !== "documents") return { page: "new" };
  if (!id) return { page: "documents" };
  const at = params.get("at");
  return {
    page: "document",
    documentId: id,
    at: at !== null && /^\d{1,9}$/.test(at) ? Number(at) : undefined,
  };
}

/** The address of a session, and of a message in it. */
export function sessionHash(sessionId: string, messageId = ""): string {
  return `#/c/${encodeURIComponent(sessionId)}${messageId ? `?m=${encodeURIComponent(messageId)}` : ""}`;
}

/** The address of a document, and of a place in its text (in code points). */
export function documentHash(documentId: string, at?: number): string {
  return `#/documents/${encodeURIComponent(documentId)}${at === undefined ? "" : `?at=${at}`}`;
}

export function go(hash: string): void {
  window.location.hash = hash;
}

/** Goes there without a step in the history. */
export function replaceRoute(hash: string): void {
  history.replaceState(null, "", hash);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

let last: { readonly hash: string; readonly route: Route } = { hash: "", route: parseRoute("") };

function currentRoute(): Route {
  const { hash } = window.location;
  if (hash !== last.hash) last = { hash, route: parseRoute(hash) };
  return last.route;
}

function subscribe(listener: () => void): () => void {
  window.addEventListener("hashchange", listener);
  return () => window.removeEventListener("hashchange", listener);
}

export function useRoute(): Route {
  return useSyncExternalStore(subscribe, currentRoute);
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a broken escape names nothing
  }
}
