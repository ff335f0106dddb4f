/**
 * What this process knows of calls by idempotency key, and which writer of a turn spoke last.
 *
 * Owns the entries; not the runs in them. The ledger lives in memory and is bounded: after a restart, or once an entry was
 * evicted, a call is NOT_SEEN. Whoever needs more (the orchestrator does) keeps its own record of dispatches.
 * L1 an entry whose run has not ended is never evicted.
 * L2 entries are reached only under the tenant and user that made them.
 * L3 the epoch of a turn never goes back.
 */
import { toBinary } from "@bufbuild/protobuf";
import { type ToolResult, ToolResultSchema } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import type { Clock } from "../lib/clock.js";
import type { ToolRun } from "./tool-run.js";

/** Whose call it is. */
export interface CallScope {
  readonly tenantId: string;
  readonly userId: string;
}

export type CallState =
  | { readonly kind: "running"; readonly run: ToolRun }
  | { readonly kind: "settled"; readonly result: ToolResult }
  /** Cut off with an unknown outcome. `mayRunAgain`: the tool is idempotent, so the same key may be executed again. */
  | { readonly kind: "in_doubt"; readonly result: ToolResult; readonly mayRunAgain: boolean };

export interface CallEntry {
  readonly toolId: string;
  /** Tells a repeat of the call from another call under the same key. */
  readonly fingerprint: string;
  epoch: number;
  state: CallState;
}

export interface CallLedgerOptions {
  readonly clock: Clock;
  /** How long a settled call is remembered, ms. Default 1 h. */
  readonly ttlMs?: number;
  /** Most settled calls remembered. Default 10,000. */
  readonly maxEntries?: number;
  /** Most bytes of results remembered. Default 64 MiB. */
  readonly maxBytes?: number;
}

interface Stored {
  readonly entry: CallEntry;
  bytes: number;
  expiresAtMs: number;
}

export class CallLedger {
  readonly #entries = new Map<string, Stored>(); // oldest use first
  readonly #epochs = new Map<string, number>();
  readonly #clock: Clock;
  readonly #ttlMs: number;
  readonly #maxEntries: number;
  readonly #maxBytes: number;
  #bytes = 0;

  constructor(options: CallLedgerOptions) {
    this.#clock = options.clock;
    this.#ttlMs = options.ttlMs ?? 3_600_000;
    this.#maxEntries = options.maxEntries ?? 10_000;
    this.#maxBytes = options.maxBytes ?? 64 * 1024 * 1024;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(scope: CallScope, key: string): CallEntry | undefined {
    const id = join(scope, key);
    const stored = this.#entries.get(id);
    if (!stored) return undefined;
    if (stored.entry.state.kind !== "running" && stored.expiresAtMs <= this.#clock.monotonicMs()) {
      this.#remove(id, stored);
      return undefined;
    }
    this.#entries.delete(id);
    this.#entries.set(id, stored);
    return stored.entry;
  }

  /** Adds or replaces the entry of a key. */
  put(scope: CallScope, key: string, entry: CallEntry): void {
    const id = join(scope, key);
    const old = this.#entries.get(id);
    if (old) this.#remove(id, old);
    this.#entries.set(id, { entry, bytes: 0, expiresAtMs: Infinity });
    this.#evict();
  }

  /** Notes how a call ended. An entry that was replaced meanwhile is left alone. */
  settle(scope: CallScope, key: string, entry: CallEntry, state: CallState): void {
    const stored = this.#entries.get(join(scope, key));
    if (stored?.entry !== entry) return;
    entry.state = state;
    stored.expiresAtMs = this.#clock.monotonicMs() + this.#ttlMs;
    stored.bytes = state.kind === "running" ? 0 : toBinary(ToolResultSchema, state.result).length;
    this.#bytes += stored.bytes;
    this.#evict();
  }

  /** Notes the epoch a turn's writer speaks with; false when a newer writer has spoken before. */
  admitEpoch(scope: CallScope, turnId: string, epoch: number): boolean {
    if (turnId === "") return true;
    const id = join(scope, turnId);
    const seen = this.#epochs.get(id) ?? 0;
    if (epoch < seen) return false;
    this.#epochs.delete(id);
    this.#epochs.set(id, epoch);
    if (this.#epochs.size > this.#maxEntries) this.#epochs.delete(this.#epochs.keys().next().value!);
    return true;
  }

  #evict(): void {
    if (this.#entries.size <= this.#maxEntries && this.#bytes <= this.#maxBytes) return;
    for (const [id, stored] of this.#entries) {
      if (stored.entry.state.kind === "running") continue;
      this.#remove(id, stored);
      if (this.#entries.size <= this.#maxEntries && this.#bytes <= this.#maxBytes) return;
    }
  }

  #remove(id: string, stored: Stored): void {
    this.#entries.delete(id);
    this.#bytes -= stored.bytes;
  }
}

function join(scope: CallScope, key: string): string {
  return JSON.stringify([scope.tenantId, scope.userId, key]);
}
