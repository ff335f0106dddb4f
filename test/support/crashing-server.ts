/**
 * The all-in-one server with one flaw: it kills itself (SIGKILL) when the marked turn reaches the point that CRASH_AT names.
 * The marked turn is the one whose text holds "CRASH". Production code knows nothing of it: the points sit in wrappers
 * around the ports of store and log.
 */
import { runAllInOne } from "../../src/main/run-all-in-one.js";
import { runService } from "../../src/main/run-service.js";
import type { ReplayLog } from "../../src/replay/replay-log.js";
import type { Store } from "../../src/store/store.js";

export type CrashPoint =
  | "before_accept"
  | "after_accept"
  | "after_claim"
  | "result_stored"
  | "before_commit"
  | "after_commit"
  | "after_terminal";

const point = process.env["CRASH_AT"] as CrashPoint | undefined;
const marked = new Set<string>();

function crashAt(here: CrashPoint): void {
  if (here === point) process.kill(process.pid, "SIGKILL");
}

function wrapStore(store: Store): Store {
  return delegate(store, {
    async acceptTurn(input) {
      if (!Buffer.from(input.userInput ?? []).includes("CRASH")) return store.acceptTurn(input);
      crashAt("before_accept");
      const outcome = await store.acceptTurn(input);
      if (outcome.kind === "accepted") marked.add(outcome.turn.turnId);
      crashAt("after_accept");
      return outcome;
    },
    async saveCheckpoint(turnId, epoch, checkpoint) {
      const saved = await store.saveCheckpoint(turnId, epoch, checkpoint);
      if (marked.has(turnId) && checkpoint.kind === "result") crashAt("result_stored");
      return saved;
    },
    async commitTurn(input) {
      if (marked.has(input.turnId)) crashAt("before_commit");
      const outcome = await store.commitTurn(input);
      if (marked.has(input.turnId)) crashAt("after_commit");
      return outcome;
    },
  });
}

function wrapLog(log: ReplayLog): ReplayLog {
  return delegate(log, {
    async append(turn, expected, entry, signal) {
      const outcome = await log.append(turn, expected, entry, signal);
      if (marked.has(turn.turnId) && outcome.kind === "appended") {
        if (entry.batch.length === 0) crashAt("after_claim");
        if (entry.terminal) crashAt("after_terminal");
      }
      return outcome;
    },
  });
}

/** The same object with some methods replaced; `this` stays the original for all others. */
function delegate<T extends object>(target: T, replaced: Partial<T>): T {
  return new Proxy(target, {
    get(original, name) {
      const own = replaced[name as keyof T];
      if (own !== undefined) return own;
      const value = Reflect.get(original, name, original) as unknown;
      return typeof value === "function" ? value.bind(original) : value;
    },
  });
}

await runService("turnwire", (config, logger) =>
  runAllInOne({ config, logger, env: process.env, wrapStore, wrapLog }),
);
