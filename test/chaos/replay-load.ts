/** Writers and readers on a log while its server dies and comes back, and the check of what they saw. */
import { expect } from "vitest";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { ReplayLog, TurnLogKey } from "../../src/replay/replay-log.js";
import { newTurn, packetsAfter, packets, Writer } from "../contract/replay-log-fixture.js";

/** Rounds of kill and restart: 2, or what TURNWIRE_CHAOS_ROUNDS says. */
export const ROUNDS = Number(process.env["TURNWIRE_CHAOS_ROUNDS"] ?? 2);

const WRITERS = 20;
const PAUSE_MS = 20;

export interface LoadReport {
  readonly packets: number;
  /** The longest time between two packets at any reader, in milliseconds. */
  readonly worstPauseMs: number;
  /** Outcomes that were unknown at first. */
  readonly repeats: number;
}

interface Reader {
  readonly turn: TurnLogKey;
  readonly got: Packet[];
  worstPauseMs: number;
}

/**
 * Runs 20 writers on `writing` and two readers of each turn, one in the same process and one on `reading`, during
 * `disturb`; then lets the writers end their turns and compares all that was acknowledged with all that was read.
 */
export async function loadWhile(
  writing: ReplayLog,
  reading: ReplayLog,
  disturb: (flowing: () => Promise<void>) => Promise<void>,
): Promise<LoadReport> {
  const stop = new AbortController();
  const deadline = AbortSignal.timeout(80_000);
  let repeats = 0;
  let acked = 0;
  const counting: ReplayLog = Object.create(writing, {
    append: {
      value: async (...args: Parameters<ReplayLog["append"]>) => {
        const outcome = await writing.append(...args);
        if (outcome.kind === "unknown") repeats += 1;
        return outcome;
      },
    },
  }) as ReplayLog;
  const turns = Array.from({ length: WRITERS }, newTurn);
  const writers = turns.map(async (turn) => {
    const writer = new Writer(counting, turn);
    while (!stop.signal.aborted) {
      await writer.write(1 + (writer.seq % 3), {}, AbortSignal.any([deadline]));
      acked += 1;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    await writer.write(1, { terminal: true }, AbortSignal.any([deadline]));
    return writer.seq;
  });
  const readers = turns.flatMap((turn) => [read(writing, turn, deadline), read(reading, turn, deadline)]);
  /** Resolves when every writer has moved on since the call, about. */
  const flowing = async (): Promise<void> => {
    const goal = acked + 10 * WRITERS;
    await expect.poll(() => acked, { timeout: 20_000, interval: 20 }).toBeGreaterThanOrEqual(goal);
  };
  try {
    await disturb(flowing);
  } finally {
    stop.abort();
  }
  const lengths = await Promise.all(writers);
  const results = await Promise.all(readers);
  results.forEach((reader, index) => {
    const expected = packets(1, lengths[Math.floor(index / 2)]!);
    expect(reader.got.length, `reader ${index}`).toBe(expected.length);
    expect(reader.got).toEqual(expected);
  });
  return {
    packets: lengths.reduce((sum, length) => sum + length, 0),
    worstPauseMs: Math.round(Math.max(...results.map((reader) => reader.worstPauseMs))),
    repeats,
  };
}

async function read(log: ReplayLog, turn: TurnLogKey, deadline: AbortSignal): Promise<Reader> {
  const reader: Reader = { turn, got: [], worstPauseMs: 0 };
  let lastAt = performance.now();
  let seq = 0;
  for await (const entry of log.follow(turn, 0, { signal: AbortSignal.any([deadline]) })) {
    const now = performance.now();
    reader.worstPauseMs = Math.max(reader.worstPauseMs, now - lastAt);
    lastAt = now;
    for (const packet of packetsAfter(entry, seq)) reader.got.push(packet);
    seq = entry.lastSeq;
  }
  return reader;
}
