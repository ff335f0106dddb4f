/** What the page keeps in the browser. A browser that refuses (private windows, full storage) costs only the keeping. */
import type { OutboxEntry, OutboxStorage } from "../../client/live/outbox.js";

/** Reads JSON; `fallback` when there is none or it is broken. */
export function readStored<T>(key: string, fallback: T): T {
  try {
    const text = localStorage.getItem(key);
    return text === null ? fallback : (JSON.parse(text) as T);
  } catch {
    return fallback; // somebody else's value, or no storage
  }
}

/** Keeps JSON; undefined removes it. */
export function store(key: string, value: unknown): void {
  try {
    if (value === undefined) localStorage.removeItem(key);
    else localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // not kept: the page works on with what it has in memory
  }
}

export const OUTBOX_KEY = "turnwire.outbox";

/** The outbox of this browser. */
export const outboxStorage: OutboxStorage = {
  load: () => readStored<readonly OutboxEntry[]>(OUTBOX_KEY, []).filter(isEntry),
  save: (entries) => store(OUTBOX_KEY, entries.length > 0 ? entries : undefined),
};

function isEntry(entry: Partial<OutboxEntry> | null): entry is OutboxEntry {
  return (
    typeof entry?.requestId === "string" &&
    typeof entry.conversation === "string" &&
    typeof entry.text === "string"
  );
}
