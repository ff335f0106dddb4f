import { afterEach, expect, test } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { silentLogger } from "../lib/log.js";
import { HealthState } from "../lib/rpc/health.js";
import { ManualClock } from "../../test/support/manual-clock.js";
import { Readiness } from "./readiness.js";

const open: Readiness[] = [];
afterEach(() => open.splice(0).forEach((readiness) => readiness.close()));

function follow(ready: (signal: AbortSignal) => Promise<void>) {
  const health = new HealthState();
  const clock = new ManualClock();
  const readiness = new Readiness({ health, ready, clock, logger: silentLogger });
  open.push(readiness);
  return { health, clock, readiness };
}

const away = (): Promise<void> =>
  Promise.reject(new TurnError(ErrorCode.UNAVAILABLE, { message: "the peer is away" }));

test("readiness - is false until the dependencies answer, false while they do not, true again", async () => {
  let answer = away;
  const { health, clock, readiness } = follow(() => answer());
  let ready = false;
  const until = readiness.untilReady(new AbortController().signal).then(() => (ready = true));
  await clock.sleepBegins(1_000);
  expect([health.serving, ready]).toEqual([false, false]);
  answer = () => Promise.resolve();
  await nextAnswer(clock);
  await until;
  expect(health.serving).toBe(true);
  answer = away;
  await nextAnswer(clock);
  expect(health.serving).toBe(false);
  answer = () => Promise.resolve();
  await nextAnswer(clock);
  expect(health.serving).toBe(true);
});

test("readiness - a dependency that never answers counts as away, and its question is aborted", async () => {
  const asked: AbortSignal[] = [];
  const { health, clock } = follow((signal) => {
    asked.push(signal);
    return asked.length === 1 ? Promise.resolve() : new Promise(() => undefined);
  });
  await clock.sleepBegins(1_000);
  expect(health.serving).toBe(true);
  const waiting = clock.sleepBegins(3_000);
  clock.advance(1_000);
  await waiting;
  const answered = clock.sleepBegins(1_000);
  clock.advance(3_000);
  await answered;
  expect(health.serving).toBe(false);
  expect(asked[1]!.aborted).toBe(true);
});

test("readiness - after close nothing is asked and nothing is set", async () => {
  const { health, clock, readiness } = follow(() => Promise.resolve());
  await clock.sleepBegins(1_000);
  readiness.close();
  health.set(false);
  await Promise.resolve();
  expect(clock.sleeping).toBe(0);
  clock.advance(10_000);
  expect(health.serving).toBe(false);
});

test("readiness - who waits for it stops waiting with its signal", async () => {
  const { readiness } = follow(away);
  const stop = new AbortController();
  const waiting = readiness.untilReady(stop.signal);
  stop.abort(new Error("told to stop"));
  await expect(waiting).rejects.toThrow("told to stop");
});

/** The next question, asked and answered. */
async function nextAnswer(clock: ManualClock): Promise<void> {
  const answered = clock.sleepBegins(1_000);
  clock.advance(1_000);
  await answered;
}
