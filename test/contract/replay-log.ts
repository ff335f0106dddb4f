/** The contract of the ReplayLog port: one suite, run over every adapter. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../src/lib/errors.js";
import { appendSurely, claimTurn } from "../../src/replay/claim.js";
import { NOTHING, type LoggedEntry, type Position, type ReplayLog } from "../../src/replay/replay-log.js";
import { collect, entryOf, newTurn, packets, packetsAfter, Writer } from "./replay-log-fixture.js";

/** One store and the ways to reach and disturb it. */
export interface LogHarness {
  /** Opens the log as one more process would; undefined = the store has room for one process only. */
  another(): Promise<ReplayLog & Counted>;
  /** What an administrator does who removes the log and has it made anew. */
  replace(): Promise<void>;
  /** Makes entries up to and including `position` go, as expiry does; undefined where only `erase` removes entries. */
  readonly expire?: (turnId: string, position: Position) => Promise<void>;
  /**
   * A log for which answers can be lost on the way: after `lose`, what the store says does not arrive until `restore`.
   */
  lossy(): Promise<{ readonly log: ReplayLog; lose(): void; restore(): void; close(): Promise<void> }>;
  /** A log that is full after some hundred KiB; undefined where the store has no bound. */
  readonly small?: () => Promise<{ readonly log: ReplayLog; close(): Promise<void> }>;
  /** What readers hold on to in the store itself (subscriptions, consumers), beyond what an idle log has. */
  readonly held?: () => Promise<number>;
  close(): Promise<void>;
}

export interface Counted {
  readonly counts: { readonly feeds: number; readonly followers: number; readonly watched: number };
}

/** A signal that never aborts; a new one each time, as callers share none. */
const never = (): AbortSignal => new AbortController().signal;

/** Runs the contract against the stores that `make` opens. `shared`: several processes can use one store. */
export function replayLogContract(
  make: () => Promise<LogHarness>,
  options: { readonly shared: boolean },
): void {
  let harness: LogHarness;
  let log: ReplayLog & Counted;
  /** The log as another process sees it; the same one where there is only one process. */
  let other: ReplayLog & Counted;

  beforeAll(async () => {
    harness = await make();
    log = await harness.another();
    other = options.shared ? await harness.another() : log;
  });
  afterAll(async () => {
    await log?.close();
    if (other !== log) await other?.close();
    await harness?.close();
  });
  afterEach(() => {
    expect(log.counts.followers + other.counts.followers, "followers left behind").toBe(0);
  });

  const readAll = (of: ReplayLog, turn = newTurn(), afterSeq = 0, hint?: Position) =>
    collect(of.read(turn, afterSeq, { signal: never(), ...(hint === undefined ? {} : { hint }) }), afterSeq);
  const followAll = (of: ReplayLog, turn = newTurn(), afterSeq = 0, signal = never()) =>
    collect(of.follow(turn, afterSeq, { signal }), afterSeq);
  const codeOf = (promise: Promise<unknown>) =>
    promise.then(
      () => "no error",
      (error: unknown) => (error instanceof TurnError ? ErrorCode[error.code] : error),
    );

  describe("append", () => {
    test("appends in order and refuses a stale expectation with the last entry", async () => {
      const turn = newTurn();
      const first = await log.append(turn, NOTHING, entryOf(1, 2), never());
      expect(first.kind).toBe("appended");
      const position = (first as { position: Position }).position;
      const second = await log.append(turn, position, entryOf(3, 3), never());
      expect(second.kind).toBe("appended");
      for (const stale of [NOTHING, position]) {
        const refused = await log.append(turn, stale, entryOf(3, 4), never());
        expect(refused).toMatchObject({ kind: "refused", last: { firstSeq: 3, lastSeq: 3, epoch: 1 } });
        expect((refused as { last: LoggedEntry }).last.position).toBe(
          (second as { position: Position }).position,
        );
      }
      expect(await readAll(other, turn)).toEqual(packets(1, 3));
    });

    test("keeps turns apart: a refused append of one leaves others alone", async () => {
      const [a, b] = [newTurn(), newTurn()];
      const outcomes = await Promise.all([
        log.append(a, NOTHING, entryOf(1, 1), never()),
        log.append(b, NOTHING, entryOf(1, 1), never()),
      ]);
      expect(outcomes.map((outcome) => outcome.kind)).toEqual(["appended", "appended"]);
      const position = (outcomes[0] as { position: Position }).position;
      const next = await Promise.all([
        log.append(a, position, entryOf(2, 2), never()),
        log.append(b, NOTHING, entryOf(1, 1), never()),
      ]);
      expect(next.map((outcome) => outcome.kind)).toEqual(["appended", "refused"]);
    });

    test("of many appends with one expectation exactly one is in", async () => {
      const turn = newTurn();
      const outcomes = await Promise.all(
        Array.from({ length: 8 }, (_, index) =>
          (index % 2 ? log : other).append(
            turn,
            NOTHING,
            entryOf(1, 1, { incarnation: `w${index}` }),
            never(),
          ),
        ),
      );
      expect(outcomes.filter((outcome) => outcome.kind === "appended")).toHaveLength(1);
      const refused = outcomes.filter((outcome) => outcome.kind === "refused");
      expect(refused).toHaveLength(7);
      const winner = outcomes.findIndex((outcome) => outcome.kind === "appended");
      for (const outcome of refused) expect(outcome).toMatchObject({ last: { incarnation: `w${winner}` } });
    });

    test("takes a batch of 256 KiB, refuses a larger one, and gives back the same bytes", async () => {
      const turn = newTurn();
      const large = entryOf(1, 1, { padding: 256 * 1024 - 60 });
      expect(large.batch.length).toBeGreaterThan(256 * 1024 - 60);
      expect(large.batch.length).toBeLessThanOrEqual(256 * 1024);
      expect((await log.append(turn, NOTHING, large, never())).kind).toBe("appended");
      const stored = await other.head(turn, never());
      expect(Buffer.compare(Buffer.from(stored!.batch), Buffer.from(large.batch))).toBe(0);
      const tooLarge = entryOf(2, 2, { padding: 256 * 1024 });
      expect(await codeOf(log.append(turn, stored!.position, tooLarge, never()))).toBe("SIZE_LIMIT");
    });

    test("an aborted signal stops it before anything is sent", async () => {
      const turn = newTurn();
      const reason = new Error("given up");
      await expect(log.append(turn, NOTHING, entryOf(1, 1), AbortSignal.abort(reason))).rejects.toBe(reason);
      expect(await log.head(turn, never())).toBeUndefined();
    });
  });

  describe("claim", () => {
    const claim = (
      of: ReplayLog,
      turn = newTurn(),
      incarnation = "writer-2",
      minEpoch = 1,
      firstClaim = false,
    ) => claimTurn(of, turn, { minEpoch, incarnation, signal: never(), firstClaim });

    test("the first claim of a turn takes the row's epoch, the next one a higher", async () => {
      const turn = newTurn();
      const first = await claim(log, turn, "writer-1", 1, true);
      expect(first).toMatchObject({ epoch: 1, lastSeq: 0, lastEntry: undefined });
      const second = await claim(other, turn);
      expect(second).toMatchObject({
        epoch: 2,
        lastSeq: 0,
        lastEntry: { epoch: 1, incarnation: "writer-1" },
      });
      const third = await claim(other, turn, "writer-3", 7);
      expect(third.epoch).toBe(8);
    });

    test("shuts out the former owner, whose append is refused and known as fenced", async () => {
      const turn = newTurn();
      const zombie = new Writer(log, turn);
      await zombie.write(3);
      const claimed = await claim(other, turn);
      expect(claimed).toMatchObject({ epoch: 2, lastSeq: 3 });
      const late = entryOf(4, 5);
      expect(await appendSurely(log, turn, zombie.position, late, never())).toMatchObject({
        kind: "fenced",
        last: { epoch: 2, incarnation: "writer-2" },
      });
      const owner = new Writer(
        other,
        turn,
        { epoch: 2, incarnation: "writer-2" },
        { position: claimed.position, seq: 3 },
      );
      await owner.write(2, { terminal: true });
      expect(await readAll(log, turn)).toEqual([...packets(1, 3), ...packets(4, 5, 0, "writer-2 ")]);
    });

    test("gets in against a writer that keeps appending", async () => {
      const turn = newTurn();
      const busy = new Writer(log, turn);
      await busy.write(1);
      let fenced: unknown;
      const writing = (async () => {
        for (;;) await busy.write(1);
      })().catch((error: unknown) => (fenced = error));
      const claimed = await claim(other, turn);
      await writing;
      expect(fenced).toMatchObject({ message: "not appended: fenced" });
      expect(claimed.lastSeq).toBe(busy.seq);
      expect(await log.head(turn, never())).toMatchObject({ position: claimed.position, epoch: 2 });
    });

    test("leaves an ended turn as it is", async () => {
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.writeTurn(5);
      const claimed = await claim(other, turn);
      expect(claimed).toMatchObject({ epoch: 1, lastSeq: 5, lastEntry: { terminal: true } });
      expect((await log.head(turn, never()))?.position).toBe(writer.position);
    });
  });

  describe("unknown outcome", () => {
    test("an append whose answer is lost is unknown within a second or so, and its repeat is recognised", async () => {
      const lossy = await harness.lossy();
      try {
        const turn = newTurn();
        const writer = new Writer(lossy.log, turn);
        await writer.write(2);
        lossy.lose();
        const entry = entryOf(3, 4);
        const begun = performance.now();
        const outcome = await lossy.log.append(turn, writer.position, entry, never());
        expect(outcome.kind).toBe("unknown");
        expect(performance.now() - begun).toBeLessThan(2_500);
        expect(await log.head(turn, never()), "it was stored all the same").toMatchObject({
          firstSeq: 3,
          lastSeq: 4,
        });
        lossy.restore();
        const sure = await appendSurely(lossy.log, turn, writer.position, entry, AbortSignal.timeout(10_000));
        expect(sure.kind).toBe("appended");
        writer.position = (sure as { position: Position }).position;
        writer.seq = 4;
        await writer.write(1, { terminal: true }, AbortSignal.timeout(10_000));
        expect(await readAll(log, turn)).toEqual(packets(1, 5));
      } finally {
        await lossy.close();
      }
    });

    test("a repeat that meets a new owner's claim is fenced", async () => {
      const lossy = await harness.lossy();
      try {
        const turn = newTurn();
        const writer = new Writer(lossy.log, turn);
        await writer.write(1);
        lossy.lose();
        const entry = entryOf(2, 2);
        expect((await lossy.log.append(turn, writer.position, entry, never())).kind).toBe("unknown");
        await claimTurn(log, turn, { minEpoch: 1, incarnation: "writer-2", signal: never() });
        lossy.restore();
        const sure = await appendSurely(lossy.log, turn, writer.position, entry, AbortSignal.timeout(10_000));
        expect(sure).toMatchObject({ kind: "fenced", last: { epoch: 2 } });
      } finally {
        await lossy.close();
      }
    });

    test("followers of the writing process get an entry whose answer was lost", async () => {
      const lossy = await harness.lossy();
      const reader = new AbortController();
      try {
        const turn = newTurn();
        const writer = new Writer(lossy.log, turn);
        await writer.write(1);
        const reading = followAll(
          lossy.log,
          turn,
          0,
          AbortSignal.any([reader.signal, AbortSignal.timeout(15_000)]),
        );
        lossy.lose();
        const entry = entryOf(2, 3, { terminal: true });
        expect((await lossy.log.append(turn, writer.position, entry, never())).kind).toBe("unknown");
        lossy.restore();
        const sure = await appendSurely(lossy.log, turn, writer.position, entry, AbortSignal.timeout(10_000));
        expect(sure.kind).toBe("appended");
        expect(await reading).toEqual(packets(1, 3));
      } finally {
        reader.abort();
        await lossy.close();
      }
    });
  });

  describe("read", () => {
    test("from every seq of a turn of 60 packets in odd batches, with and without a hint", async () => {
      const turn = newTurn();
      const positions: { readonly seq: number; readonly position: Position }[] = [];
      await claimTurn(log, turn, { minEpoch: 1, incarnation: "writer-1", signal: never(), firstClaim: true });
      const claimed = (await log.head(turn, never()))!.position;
      const writer = new Writer(log, turn, {}, { position: claimed, seq: 0 });
      const noise = new Writer(other, newTurn());
      const sizes = [1, 3, 2, 7, 1, 5, 4];
      for (let at = 0; writer.seq < 60; at += 1) {
        const count = Math.min(sizes[at % sizes.length]!, 60 - writer.seq);
        await writer.write(count, { terminal: writer.seq + count === 60 });
        positions.push({ seq: writer.seq, position: writer.position });
        await noise.write(1);
      }
      for (let afterSeq = 0; afterSeq <= 60; afterSeq += 1) {
        expect(await readAll(other, turn, afterSeq), `after ${afterSeq}`).toEqual(packets(afterSeq + 1, 60));
        const held = positions.find(({ seq }) => seq >= afterSeq)!.position;
        expect(await readAll(other, turn, afterSeq, held)).toEqual(packets(afterSeq + 1, 60));
      }
    });

    test("does not trust a hint: of another turn, too far on, or made up", async () => {
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.writeTurn(20);
      const stranger = new Writer(log, newTurn());
      await stranger.write(1);
      const hints = [stranger.position, writer.position, 1, 2 ** 40, -5, 0.5, Number.NaN];
      for (const hint of hints) {
        expect(await readAll(other, turn, 4, hint as Position), `hint ${hint}`).toEqual(packets(5, 20));
      }
    });

    test("ends at the head of a running turn, and gives nothing for a turn without entries", async () => {
      const turn = newTurn();
      expect(await readAll(log, turn)).toEqual([]);
      const writer = new Writer(log, turn);
      await writer.write(4);
      expect(await readAll(other, turn)).toEqual(packets(1, 4));
      expect(await readAll(other, turn, 4)).toEqual([]);
    });

    test("a long turn comes whole, in pages", async () => {
      const turn = newTurn();
      const writer = new Writer(log, turn);
      for (let entry = 0; entry < 300; entry += 1) await writer.write(2, { padding: 2_000 });
      const all = await readAll(other, turn);
      expect(all.map((packet) => packet.seq)).toEqual(Array.from({ length: 600 }, (_, index) => index + 1));
    });

    test("a cursor beyond the head is CURSOR_AHEAD", async () => {
      const turn = newTurn();
      await new Writer(log, turn).write(3);
      expect(await codeOf(readAll(other, turn, 4))).toBe("CURSOR_AHEAD");
      expect(await codeOf(followAll(log, turn, 9))).toBe("CURSOR_AHEAD");
    });
  });

  describe("follow", () => {
    test("gives what is there, then each entry as it comes, and ends with the terminal", async () => {
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.write(3);
      const readers = [
        followAll(log, turn),
        followAll(other, turn),
        followAll(log, turn, 2),
        followAll(other, turn, 3),
      ];
      await writer.writeTurn(40);
      const got = await Promise.all(readers);
      expect(got).toEqual([packets(1, 40), packets(1, 40), packets(3, 40), packets(4, 40)]);
    });

    test("waits for a turn that has no entry yet", async () => {
      const turn = newTurn();
      const readers = [followAll(log, turn), followAll(other, turn)];
      await new Writer(log, turn).writeTurn(12);
      expect(await Promise.all(readers)).toEqual([packets(1, 12), packets(1, 12)]);
    });

    test("shows entries to a reader elsewhere soon after they are durable", async () => {
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.write(1);
      const delays: number[] = [];
      const written: number[] = [];
      const reading = (async () => {
        for await (const entry of other.follow(turn, 1, { signal: never() })) {
          delays.push(performance.now() - written[entry.lastSeq]!);
        }
      })();
      for (let seq = 2; seq <= 40; seq += 1) {
        written[seq] = performance.now();
        await writer.write(1, { terminal: seq === 40 });
      }
      await reading;
      delays.sort((a, b) => a - b);
      expect(delays[Math.floor(delays.length / 2)], "median").toBeLessThan(100);
    });

    test("stays with the turn when another process takes it over", async () => {
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.write(2);
      const readers = [followAll(log, turn), followAll(other, turn)];
      await writer.write(2);
      const claimed = await claimTurn(other, turn, { minEpoch: 1, incarnation: "writer-2", signal: never() });
      const from = { position: claimed.position, seq: claimed.lastSeq };
      const owner = new Writer(other, turn, { epoch: claimed.epoch, incarnation: "writer-2" }, from);
      await owner.write(3);
      await owner.write(1, { terminal: true });
      const expected = [...packets(1, 4), ...packets(5, 8, 0, "writer-2 ")];
      expect(await Promise.all(readers)).toEqual([expected, expected]);
    });

    test("never shows what was refused", async () => {
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.write(1);
      const readers = [followAll(log, turn), followAll(other, turn)];
      for (let round = 0; round < 10; round += 1) {
        const refused = await log.append(turn, NOTHING, entryOf(2, 2, { incarnation: "zombie" }), never());
        expect(refused.kind).toBe("refused");
        await writer.write(1);
      }
      await writer.write(1, { terminal: true });
      expect(await Promise.all(readers)).toEqual([packets(1, 12), packets(1, 12)]);
    });

    test("ends at once for a cursor at the end of an ended turn", async () => {
      const turn = newTurn();
      await new Writer(log, turn).writeTurn(7);
      for (const of of [log, other]) {
        expect(await followAll(of, turn, 7)).toEqual([]);
        expect(await followAll(of, turn, 5)).toEqual(packets(6, 7));
      }
    });

    test("a hundred readers of one turn each get it whole", async () => {
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.write(5);
      const readers = Array.from({ length: 100 }, (_, index) =>
        followAll(index % 2 ? log : other, turn, index % 5),
      );
      await writer.writeTurn(80);
      const got = await Promise.all(readers);
      got.forEach((all, index) => expect(all).toEqual(packets((index % 5) + 1, 80)));
    });

    test("a slow reader holds nobody up, holds little, and misses nothing", async () => {
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.write(1);
      const seen: number[] = [];
      const slow = other.follow(turn, 0, { signal: never() })[Symbol.asyncIterator]();
      let cursor = 0;
      const take = async (): Promise<boolean> => {
        const next = await slow.next();
        if (next.done) return false;
        for (const packet of packetsAfter(next.value, cursor)) seen.push(packet.seq);
        cursor = next.value.lastSeq;
        return true;
      };
      await take();
      const quick = followAll(other, turn);
      // 3 MiB pass by while the slow reader holds one entry in its hand; more than it may queue.
      for (let entry = 0; entry < 48; entry += 1)
        await writer.write(1, { padding: 64 * 1024, terminal: entry === 47 });
      expect((await quick).map((packet) => packet.seq)).toHaveLength(49);
      while (await take()) continue;
      expect(seen).toEqual(Array.from({ length: 49 }, (_, index) => index + 1));
    });

    test("a reader that leaves is forgotten, also when nothing comes any more", async () => {
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.write(1);
      const before = await harness.held?.();
      const leaving = new AbortController();
      const gone = new Error("the client left");
      const waiting = [log, other, other].map((of) =>
        followAll(of, turn, 1, leaving.signal).catch((error: unknown) => error),
      );
      const blocked = other.follow(turn, 0, { signal: leaving.signal })[Symbol.asyncIterator]();
      await blocked.next(); // and its consumer never comes back
      leaving.abort(gone);
      expect(await Promise.all(waiting)).toEqual([gone, gone, gone]);
      expect(other.counts).toMatchObject({ followers: 0, watched: 0 });
      const stopping = other.follow(turn, 0, { signal: never() });
      for await (const entry of stopping) if (entry.lastSeq > 0) break;
      expect(other.counts).toMatchObject({ followers: 0, watched: 0 });
      if (before !== undefined) await expect.poll(() => harness.held!(), { timeout: 5_000 }).toBe(before);
      await writer.write(1, { terminal: true });
    });
  });

  describe("what goes", () => {
    test.runIf(options.shared)("erase removes the packets and keeps the turn closed for ever", async () => {
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.writeTurn(30);
      await other.erase(turn, never());
      await other.erase(turn, never()); // again: nothing more happens
      const tombstone = await log.head(turn, never());
      expect(tombstone).toMatchObject({ erased: true, lastSeq: 30 });
      expect(tombstone?.batch).toHaveLength(0);
      for (const of of [log, other]) {
        expect(await codeOf(readAll(of, turn))).toBe("CURSOR_EXPIRED");
        expect(await codeOf(followAll(of, turn, 12))).toBe("CURSOR_EXPIRED");
        expect(await followAll(of, turn, 30)).toEqual([]);
        expect((await of.append(turn, NOTHING, entryOf(1, 1), never())).kind).toBe("refused");
        expect((await of.append(turn, writer.position, entryOf(31, 31), never())).kind).toBe("refused");
        expect(
          await claimTurn(of, turn, { minEpoch: 1, incarnation: "late", signal: never() }),
        ).toMatchObject({
          lastEntry: { erased: true },
        });
      }
      await other.erase(newTurn(), never());
    });

    test("erase under a follower ends it: at the end of the turn, or as expired", async () => {
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.write(6);
      const slow = other.follow(turn, 0, { signal: never() })[Symbol.asyncIterator]();
      await slow.next();
      await writer.write(6);
      await log.erase(turn, never());
      const rest = (async () => {
        while (!(await slow.next()).done) continue;
      })();
      expect(["no error", "CURSOR_EXPIRED"]).toContain(await codeOf(rest));
    });

    test("entries that expired are refused by type, the ones that stay are served", async ({ skip }) => {
      if (!harness.expire) return skip("only erase removes entries here");
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.write(5);
      const gone = writer.position;
      await writer.write(5);
      await writer.write(5);
      await harness.expire(turn.turnId, gone);
      expect(await codeOf(readAll(other, turn))).toBe("CURSOR_EXPIRED");
      expect(await codeOf(readAll(other, turn, 3, gone))).toBe("CURSOR_EXPIRED");
      expect(await codeOf(followAll(other, turn, 4))).toBe("CURSOR_EXPIRED");
      expect(await readAll(other, turn, 5)).toEqual(packets(6, 15));
      expect(await readAll(other, turn, 12)).toEqual(packets(13, 15));
    });

    test("a full log says so and goes on serving what it has", async ({ skip }) => {
      if (!harness.small) return skip("the store has no bound of its own");
      const small = await harness.small();
      try {
        const turn = newTurn();
        let position = NOTHING;
        let seq = 0;
        let outcome = await small.log.append(turn, position, entryOf(1, 1, { padding: 30_000 }), never());
        while (outcome.kind === "appended" && seq < 500) {
          position = outcome.position;
          seq += 1;
          outcome = await small.log.append(
            turn,
            position,
            entryOf(seq + 1, seq + 1, { padding: 30_000 }),
            never(),
          );
        }
        expect(outcome.kind).toBe("full");
        expect(await small.log.fullness(never())).toBeGreaterThan(0.8);
        expect(
          await appendSurely(
            small.log,
            turn,
            position,
            entryOf(seq + 1, seq + 1, { padding: 30_000 }),
            never(),
          ),
        ).toEqual({
          kind: "full",
        });
        const all = await collect(small.log.read(turn, 0, { signal: never() }), 0);
        expect(all).toHaveLength(seq);
      } finally {
        await small.close();
      }
    });
  });

  describe("the log as a whole", () => {
    test("has one id for all who open it, answers a ping, and says how full it is", async () => {
      expect(log.logId).toMatch(/.{8}/);
      expect(other.logId).toBe(log.logId);
      await log.ping(never());
      const fullness = await log.fullness(never());
      expect(fullness).toBeGreaterThanOrEqual(0);
      expect(fullness).toBeLessThan(0.5);
    });

    test("a log that was replaced has another id, and its readers and writers are told", async () => {
      const before = log.logId;
      const turn = newTurn();
      const writer = new Writer(log, turn);
      await writer.write(3);
      const readers = [codeOf(followAll(log, turn)), codeOf(followAll(other, turn))];
      await expect.poll(() => log.counts.followers + other.counts.followers).toBeGreaterThanOrEqual(2);
      await harness.replace();
      const outcome = await appendSurely(
        log,
        turn,
        writer.position,
        entryOf(4, 4),
        AbortSignal.timeout(10_000),
      ).catch((error: unknown) => ({ kind: TurnError.from(error).code }));
      expect(["truncated", ErrorCode.LOG_REPLACED]).toContain(outcome.kind);
      for (const code of await Promise.all(readers))
        expect(["LOG_REPLACED", "LOG_TRUNCATED"]).toContain(code);
      await log.ping(never());
      await other.ping(never());
      expect(log.logId).not.toBe(before);
      expect(other.logId).toBe(log.logId);
      const fresh = newTurn();
      await new Writer(log, fresh).writeTurn(9);
      expect(await readAll(other, fresh)).toEqual(packets(1, 9));
    });
  });
}
