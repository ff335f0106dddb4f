/**
 * Messages on their way. Owns the sends that the service has not accepted yet, kept in a storage that survives a reload.
 *
 * O1 a send is stored before it is tried, and removed only when it was accepted or given up by the user. O2 it keeps its
 * request_id, so that trying again never sends twice. O3 the sends of a conversation leave in order, one at a time; other
 * conversations do not wait. O4 what the service refuses for good stays, with the reason, until the user decides.
 * O5 bounded: number and bytes. O6 the storage is what counts: a tab takes from it what the others have added, changed and
 * removed, and writes only the entry that it changes.
 */
import type { StartTurnResponse } from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../../lib/clock.js";
import { clientError, toClientError } from "../errors.js";
import { newRequestId } from "../request-id.js";
import { backoffMs } from "../resume-policy.js";
import { Observable } from "./observable.js";

/** Where a send goes in the session's tree. */
export type SendPosition =
  | { readonly case: "end" }
  | { readonly case: "after"; readonly messageId: string }
  | { readonly case: "regenerate"; readonly messageId: string }
  | { readonly case: "edit"; readonly messageId: string };

/** What the user wants to be sent. Plain values: it is kept as JSON. */
export interface Draft {
  /** A session's id, or a name that begins with "new-" for a conversation that the send makes. */
  readonly conversation: string;
  readonly text: string;
  readonly attachments: readonly {
    readonly fileId: string;
    readonly name: string;
    readonly mediaType: string;
  }[];
  readonly position: SendPosition;
  /** What a conversation that it makes begins with: passed through to `send`. */
  readonly settings: unknown;
}

export interface OutboxEntry extends Draft {
  readonly requestId: string;
  readonly createdAtMs: number;
  readonly status: "queued" | "sending" | "failed";
  /** Why it failed, or why it waits. */
  readonly problem?: { readonly code: ErrorCode; readonly message: string };
}

/** Where entries are kept, each by itself; several tabs use it at the same time. */
export interface OutboxStorage {
  /** All entries, in whatever order. */
  load(): readonly OutboxEntry[];
  /** Keeps an entry, in place of the one with its requestId. Throws when there is no room. */
  save(entry: OutboxEntry): void;
  remove(requestId: string): void;
}

export interface OutboxOptions {
  readonly storage: OutboxStorage;
  readonly clock: Clock;
  /** Starts the turn. */
  readonly send: (entry: OutboxEntry, signal: AbortSignal) => Promise<StartTurnResponse>;
  readonly onAccepted: (entry: OutboxEntry, response: StartTurnResponse) => void;
  /** Runs a task while no other tab does; default: at once. */
  readonly exclusively?: <T>(name: string, task: () => Promise<T>) => Promise<T>;
  readonly maxBackoffMs?: number;
  readonly random?: () => number;
}

const MAX_ENTRIES = 50;
const MAX_CHARS = 2_000_000;
/** Codes that mean "not now" whatever the table says of trying again. */
const NOT_NOW: ReadonlySet<ErrorCode> = new Set([ErrorCode.SESSION_BUSY, ErrorCode.UNAUTHENTICATED]);

/** True for a conversation that has no session yet. */
export function isNewConversation(conversation: string): boolean {
  return conversation.startsWith("new-");
}

export class Outbox {
  /** The entries, oldest first. */
  readonly entries: Observable<readonly OutboxEntry[]>;
  readonly #options: OutboxOptions;
  readonly #closed = new AbortController();
  readonly #attempts = new Map<string, number>();
  /** Conversations with a send under way, and the bell that ends a wait. */
  readonly #active = new Map<string, () => void>();

  constructor(options: OutboxOptions) {
    this.#options = options;
    this.entries = new Observable<readonly OutboxEntry[]>([]);
    this.reload();
  }

  /** Takes a message. Throws SIZE_LIMIT when too much waits already, or when it cannot be kept. */
  add(draft: Draft): OutboxEntry {
    const { clock, storage } = this.#options;
    const before = this.entries.get();
    const entry: OutboxEntry = {
      ...draft,
      requestId: newRequestId(),
      createdAtMs: Math.max(clock.now().getTime(), (before.at(-1)?.createdAtMs ?? 0) + 1), // says the order
      status: "queued",
    };
    const chars = before.reduce((sum, { text }) => sum + text.length, entry.text.length);
    if (before.length >= MAX_ENTRIES || chars > MAX_CHARS)
      throw clientError(ErrorCode.SIZE_LIMIT, "too many messages wait to be sent");
    try {
      storage.save(entry);
    } catch (cause) {
      throw clientError(ErrorCode.SIZE_LIMIT, "the browser has no room to keep the message", cause);
    }
    this.entries.set([...before, entry]);
    this.flush();
    return entry;
  }

  /** Takes a message out that was not accepted. */
  discard(requestId: string): void {
    this.#remove(requestId);
    this.flush();
  }

  /** Tries a refused message again, as a new send. */
  retry(requestId: string): void {
    this.#attempts.delete(requestId);
    this.#change(requestId, { status: "queued", problem: undefined, requestId: newRequestId() });
    this.#options.storage.remove(requestId);
    this.flush();
  }

  /** Another tab has changed the storage. Ends no wait: two tabs that fail would drive each other. */
  reload(): void {
    this.#takeOver();
    for (const { conversation } of this.entries.get())
      if (!this.#active.has(conversation)) void this.#work(conversation);
  }

  /** Tries what waits, at once: the network is back, a turn has ended, the user has signed in. */
  flush(): void {
    for (const { conversation } of this.entries.get()) {
      const ring = this.#active.get(conversation);
      if (ring) ring();
      else void this.#work(conversation);
    }
  }

  close(): void {
    this.#closed.abort();
    for (const ring of this.#active.values()) ring();
  }

  /** Sends what a conversation has, one after the other, until nothing is left or the first one failed. */
  async #work(conversation: string): Promise<void> {
    const first = this.#first(conversation);
    if (!first || first.status === "failed" || this.#closed.signal.aborted) return;
    this.#active.set(conversation, () => undefined);
    try {
      for (let entry: OutboxEntry | undefined = first; entry; entry = this.#first(conversation)) {
        if (entry.status === "failed" || this.#closed.signal.aborted) return;
        const { exclusively = (_name, task) => task() } = this.#options;
        const { requestId } = entry;
        const waitMs = await exclusively(`turnwire-outbox-${conversation}`, () => this.#try(requestId));
        if (waitMs > 0) await this.#pause(conversation, waitMs);
      }
    } finally {
      this.#active.delete(conversation);
    }
  }

  /** One attempt. How long to wait before the next, milliseconds. */
  async #try(requestId: string): Promise<number> {
    this.#takeOver(); // another tab may have sent it before our turn came
    const entry = this.entries.get().find((each) => each.requestId === requestId);
    if (entry?.status !== "queued") return 0;
    this.#change(requestId, { status: "sending" });
    try {
      const response = await this.#options.send(entry, this.#closed.signal);
      this.#options.onAccepted(entry, response); // who watches the storage knows already what became of it
      this.#accepted(entry, response);
      if (isNewConversation(entry.conversation)) this.flush();
      return 0;
    } catch (thrown) {
      if (this.#closed.signal.aborted) return 0;
      const error = toClientError(thrown);
      const problem = { code: error.code, message: error.message };
      const waits = error.retryable || NOT_NOW.has(error.code);
      this.#change(requestId, { status: waits ? "queued" : "failed", problem });
      if (!waits) return 0;
      const attempt = (this.#attempts.get(requestId) ?? 0) + 1;
      this.#attempts.set(requestId, attempt);
      const { random = Math.random, maxBackoffMs = 5_000 } = this.#options;
      return Math.max(error.retryAfterMs, backoffMs(attempt, random(), maxBackoffMs));
    }
  }

  /** Later sends of a conversation that was new go to the session that the first one made. */
  #accepted({ requestId, conversation }: OutboxEntry, response: StartTurnResponse): void {
    const sessionId = response.started?.sessionId;
    this.#remove(requestId);
    if (!isNewConversation(conversation) || !sessionId) return;
    for (const each of this.entries.get())
      if (each.conversation === conversation) this.#change(each.requestId, { conversation: sessionId });
  }

  async #pause(conversation: string, waitMs: number): Promise<void> {
    const over = new AbortController();
    const rung = new Promise<void>((resolve) => this.#active.set(conversation, resolve));
    await Promise.race([rung, this.#options.clock.sleep(waitMs, over.signal).catch(() => undefined)]);
    over.abort();
  }

  /** Makes the entries what the storage says. */
  #takeOver(): void {
    const mine = new Map(this.entries.get().map((entry) => [entry.requestId, entry]));
    const entries = this.#options.storage.load().map((entry) => {
      const own = mine.get(entry.requestId);
      return own?.status === "sending" ? own : queuedAgain(entry);
    });
    this.entries.set(entries.sort(byAge));
  }

  #first(conversation: string): OutboxEntry | undefined {
    return this.entries.get().find((entry) => entry.conversation === conversation);
  }

  #change(requestId: string, change: Partial<OutboxEntry>): void {
    const entries = this.entries.get().map((entry) => {
      if (entry.requestId !== requestId) return entry;
      const changed = { ...entry, ...change };
      this.#keep(changed);
      return changed;
    });
    this.entries.set(entries);
  }

  #keep(entry: OutboxEntry): void {
    try {
      this.#options.storage.save(entry);
    } catch {
      // it is kept as it was: after a reload it is tried again
    }
  }

  #remove(requestId: string): void {
    this.#attempts.delete(requestId);
    this.#options.storage.remove(requestId);
    this.entries.set(this.entries.get().filter((entry) => entry.requestId !== requestId));
  }
}

/** An entry as another tab, or this one before a reload, has left it. */
function queuedAgain(entry: OutboxEntry): OutboxEntry {
  return entry.status === "sending" ? { ...entry, status: "queued" } : entry;
}

function byAge(a: OutboxEntry, b: OutboxEntry): number {
  return a.createdAtMs - b.createdAtMs || (a.requestId < b.requestId ? -1 : 1);
}
