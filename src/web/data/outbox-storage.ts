/** Where the browser keeps messages on their way: one key for each, so that tabs never overwrite each other's. */
import type { OutboxEntry, OutboxStorage } from "../../client/live/outbox.js";
import type { Account } from "./account.js";

/** What the keys of an account's messages begin with. */
export function outboxPrefix({ name }: Account): string {
  return `turnwire.outbox.${name}.`;
}

/** The outbox of an account in this browser. */
export function outboxStorage(account: Account): OutboxStorage {
  const prefix = outboxPrefix(account);
  const kept = browserStore();
  return {
    load: () =>
      Array.from({ length: kept.length }, (_, i) => kept.key(i) ?? "")
        .filter((key) => key.startsWith(prefix))
        .map((key) => parse(kept.getItem(key)))
        .filter(isEntry),
    save: (entry) => kept.setItem(prefix + entry.requestId, JSON.stringify(entry)),
    remove: (requestId) => kept.removeItem(prefix + requestId),
  };
}

/** localStorage; where the browser gives none, what a page keeps for as long as it lives. */
function browserStore(): Pick<Storage, "length" | "key" | "getItem" | "setItem" | "removeItem"> {
  try {
    return window.localStorage;
  } catch {
    return new MemoryStore(); // storage is switched off
  }
}

class MemoryStore {
  readonly #values = new Map<string, string>();
  get length(): number {
    return this.#values.size;
  }
  key(index: number): string | null {
    return [...this.#values.keys()][index] ?? null;
  }
  getItem(key: string): string | null {
    return this.#values.get(key) ?? null;
  }
  setItem(key: string, value: string): void {
    this.#values.set(key, value);
  }
  removeItem(key: string): void {
    this.#values.delete(key);
  }
}

function parse(text: string | null): Partial<OutboxEntry> | null {
  try {
    return JSON.parse(text ?? "null") as Partial<OutboxEntry> | null;
  } catch {
    return null; // somebody else's value
  }
}

function isEntry(entry: Partial<OutboxEntry> | null): entry is OutboxEntry {
  return (
    typeof entry?.requestId === "string" &&
    typeof entry.conversation === "string" &&
    typeof entry.text === "string" &&
    typeof entry.createdAtMs === "number"
  );
}
