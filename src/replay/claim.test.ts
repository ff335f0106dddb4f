import { describe, expect, test } from "vitest";
import { appendSurely, claimTurn } from "./claim.js";
import { createMemoryReplayLog, type AppendFate } from "./memory-replay-log.js";
import { NOTHING, type Entry, type Position, type TurnLogKey } from "./replay-log.js";

const turn: TurnLogKey = { turnId: "turn-1", partition: 0 };
const live = (): AbortSignal => new AbortController().signal;

function entry(firstSeq: number, lastSeq: number, epoch = 1, incarnation = "me"): Entry {
  return { epoch, incarnation, firstSeq, lastSeq, terminal: false, batch: Uint8Array.of(firstSeq) };
}

/** A log whose appends end as listed, then normally. */
function scripted(...fates: readonly AppendFate[]) {
  const left = [...fates];
  const asked: Entry[] = [];
  const log = createMemoryReplayLog({
    onAppend: (_turn, _expected, wanted) => {
      asked.push(wanted);
      return left.shift() ?? "normal";
    },
  });
  return { log, asked };
}

describe("appendSurely", () => {
  test.each<[string, AppendFate[], number]>([
    ["stored, answer lost", ["stored_unknown"], 2],
    ["not stored", ["lost_unknown"], 2],
    ["not stored, then stored and lost", ["lost_unknown", "stored_unknown"], 3],
    ["lost three times", ["lost_unknown", "lost_unknown", "lost_unknown"], 4],
  ])("%s: the same entry again until it is known to be in, once", async (_, fates, attempts) => {
    const { log, asked } = scripted(...fates);
    const wanted = entry(1, 2);
    const outcome = await appendSurely(log, turn, NOTHING, wanted, live());
    const head = await log.head(turn, live());
    expect(outcome).toEqual({ kind: "appended", position: head?.position });
    expect(head).toMatchObject({ firstSeq: 1, lastSeq: 2, position: 1 });
    expect(asked).toEqual(Array(attempts).fill(wanted));
  });

  test.each<[string, Entry]>([
    ["a higher epoch", entry(1, 1, 2, "other")],
    ["another incarnation of the same epoch", entry(1, 1, 1, "other")],
    ["another entry of my own", entry(1, 5)],
  ])("%s in its place: fenced", async (_, there) => {
    const { log } = scripted();
    await log.append(turn, NOTHING, there, live());
    expect(await appendSurely(log, turn, NOTHING, entry(1, 1), live())).toMatchObject({
      kind: "fenced",
      last: there,
    });
  });

  test("a log that ends before my last entry is truncated, whoever wrote what is left", async () => {
    const { log } = scripted();
    await log.append(turn, NOTHING, entry(1, 1), live());
    const beyond = 7 as Position;
    expect(await appendSurely(log, turn, beyond, entry(2, 2), live())).toMatchObject({ kind: "truncated" });
    log.replace();
    expect(await appendSurely(log, turn, beyond, entry(2, 2), live())).toEqual({
      kind: "truncated",
      last: undefined,
    });
  });

  test("an erased turn is fenced, also for the writer of its last entry", async () => {
    const { log } = scripted();
    const first = await log.append(turn, NOTHING, entry(1, 1), live());
    await log.erase(turn, live());
    const position = (first as { position: Position }).position;
    expect(await appendSurely(log, turn, position, entry(2, 1), live())).toMatchObject({ kind: "fenced" });
  });

  test("a refusal for an attempt that is still on its way is no verdict", async () => {
    const { log } = scripted();
    const refusals = [{ kind: "refused", last: undefined }] as const;
    const left = [...refusals];
    const busy = Object.create(log, {
      append: { value: (...args: Parameters<typeof log.append>) => left.shift() ?? log.append(...args) },
    }) as typeof log;
    expect(await appendSurely(busy, turn, NOTHING, entry(1, 1), live())).toMatchObject({ kind: "appended" });
    expect(left).toEqual([]);
  });

  test("says full at once", async () => {
    const { log, asked } = scripted("full");
    expect(await appendSurely(log, turn, NOTHING, entry(1, 1), live())).toEqual({ kind: "full" });
    expect(asked).toHaveLength(1);
  });

  test("gives up with the signal's reason", async () => {
    const stop = new AbortController();
    const reason = new Error("lease lost");
    let attempts = 0;
    const log = createMemoryReplayLog({
      onAppend: () => {
        attempts += 1;
        if (attempts === 3) stop.abort(reason);
        return "lost_unknown";
      },
    });
    await expect(appendSurely(log, turn, NOTHING, entry(1, 1), stop.signal)).rejects.toBe(reason);
    expect(attempts).toBe(3);
  });
});

describe("claimTurn", () => {
  const claim = (
    log: ReturnType<typeof scripted>["log"],
    incarnation: string,
    minEpoch: number,
    firstClaim = false,
  ) => claimTurn(log, turn, { minEpoch, incarnation, firstClaim, signal: live() });

  test("the first claim has the row's epoch, also when its answer was lost", async () => {
    const { log } = scripted("stored_unknown");
    expect(await claim(log, "me", 1, true)).toEqual({
      epoch: 1,
      position: 1,
      lastSeq: 0,
      lastEntry: undefined,
    });
    expect(await log.head(turn, live())).toMatchObject({ firstSeq: 1, lastSeq: 0, terminal: false });
  });

  test("a first claim that comes late leaves the turn to whoever took it over", async () => {
    const { log } = scripted();
    const taken = await claim(log, "heir", 1);
    const late = await claim(log, "me", 0, true);
    expect(late).toMatchObject({ epoch: 2, position: taken.position, lastEntry: { incarnation: "heir" } });
    expect(await log.append(turn, taken.position, entry(1, 1, 2, "heir"), live())).toMatchObject({
      kind: "appended",
    });
  });

  test.each([
    [1, 1, 2],
    [5, 1, 6],
    [1, 9, 10],
  ])("epoch = max(row %i, log %i) + 1 = %i", async (row, logged, expected) => {
    const { log } = scripted();
    await log.append(turn, NOTHING, entry(1, 3, logged, "before"), live());
    const claimed = await claim(log, "me", row);
    expect(claimed).toMatchObject({ epoch: expected, lastSeq: 3, lastEntry: { incarnation: "before" } });
  });

  test("what slips in between is claimed over, with a still higher epoch", async () => {
    const { log } = scripted();
    const racing = createRacingLog(log, [entry(2, 2, 1, "zombie"), entry(3, 2, 4, "rival")]);
    await log.append(turn, NOTHING, entry(1, 1, 1, "zombie"), live());
    const claimed = await claimTurn(racing, turn, { minEpoch: 1, incarnation: "me", signal: live() });
    expect(claimed).toMatchObject({ epoch: 5, lastSeq: 2, lastEntry: { incarnation: "rival" } });
    expect(await log.head(turn, live())).toMatchObject({ position: claimed.position, incarnation: "me" });
  });

  test("a terminal that slips in between ends the claim", async () => {
    const { log } = scripted();
    await log.append(turn, NOTHING, entry(1, 1, 1, "zombie"), live());
    const racing = createRacingLog(log, [{ ...entry(2, 2, 1, "zombie"), terminal: true }]);
    const claimed = await claimTurn(racing, turn, { minEpoch: 1, incarnation: "me", signal: live() });
    expect(claimed.lastEntry).toMatchObject({ terminal: true });
    expect((await log.head(turn, live()))?.position).toBe(claimed.position);
  });

  test("a full log fails the claim as OVERLOADED", async () => {
    const { log } = scripted("full");
    await expect(claim(log, "me", 1, true)).rejects.toMatchObject({
      retryable: true,
      message: "the log is full",
    });
  });
});

/** The log, but before each append by "me" a rival's entry gets in, as long as there are any. */
function createRacingLog(log: ReturnType<typeof scripted>["log"], rivals: readonly Entry[]): typeof log {
  const left = [...rivals];
  return Object.create(log, {
    head: { value: log.head.bind(log) },
    append: {
      value: async (...[key, expected, wanted, signal]: Parameters<typeof log.append>) => {
        const rival = left.shift();
        const head = await log.head(key, signal);
        if (rival) await log.append(key, head?.position ?? NOTHING, rival, signal);
        return log.append(key, expected, wanted, signal);
      },
    },
  }) as typeof log;
}
