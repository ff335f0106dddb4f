import { describe } from "vitest";
import {
  createMemoryReplayLog,
  type AppendFate,
  type MemoryReplayLog,
} from "../../src/replay/memory-replay-log.js";
import { replayLogContract, type LogHarness } from "./replay-log.js";

function memoryHarness(): LogHarness {
  let fate: AppendFate = "normal";
  const logs: MemoryReplayLog[] = [];
  const open = (onAppend?: () => AppendFate): MemoryReplayLog => {
    const log = createMemoryReplayLog(onAppend ? { onAppend } : {});
    logs.push(log);
    return log;
  };
  const main = open(() => fate);
  return {
    another: () => Promise.resolve(main),
    replace: () => Promise.resolve(main.replace()),
    expire: (turnId, position) => Promise.resolve(main.expire(turnId, position)),
    lossy: () =>
      Promise.resolve({
        log: main,
        lose: () => (fate = "stored_unknown"),
        restore: () => (fate = "normal"),
        close: () => Promise.resolve(),
      }),
    small: () => {
      let room = 20;
      const log = open(() => (room-- > 0 ? "normal" : "full"));
      const small = Object.assign(log, { fullness: () => Promise.resolve(1) });
      return Promise.resolve({ log: small, close: () => log.close() });
    },
    close: async () => {
      for (const log of logs) await log.close();
    },
  };
}

describe("ReplayLog in memory", () => {
  replayLogContract(() => Promise.resolve(memoryHarness()), { shared: false });
});
