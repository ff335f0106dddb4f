/**
 * Who is alive, and what becomes of the turns of the dead (durability.md 4). It owns this process's beat and its view of
 * the others' beats.
 *
 * - Dead = the same beat was seen for DEAD_AFTER_MS of this process's own monotonic clock while its own beats kept
 *   committing: no wall clocks are compared, and an outage of Postgres makes nobody look dead.
 * - Who holds the data directory's lock takes its predecessors (same data directory) for dead at once.
 * - One recovery per turn at a time, few at once; whoever is slower finds the turn taken and leaves it.
 * - Beats wait for nothing but themselves: what takes long (recoveries, a log that does not answer) runs beside them, or
 *   this process would look dead to the others while it is busy with the dead.
 * - A turn of this process that another one has taken is left at once, also when its model is silent and nothing of it
 *   would be written for long: its calls end.
 * - Turns that are stored as this process's and run nowhere (an accept whose answer was lost, an end that failed, a lost
 *   race of two recoveries) are orphans: looked for after such a failure, and ended when they are seen twice.
 */
import type { TurnRow } from "../store/store.js";
import type { ActiveTurns } from "./active-turns.js";
import type { ChatDeps } from "./ports.js";
import type { CommandListener } from "./stop-turn.js";

const BEAT_MS = 1_000;
const DEAD_AFTER_MS = 6_000;
const RECOVER_BATCH = 500;
const RECOVER_AT_ONCE = 8;
/** More than one process runs at once. */
const MOST_OWN_TURNS = 10_000;
/** Entries of closed turns leave the log after this; their archive stays. */
const ERASE_AFTER_MS = 10 * 60_000;
const ERASE_BATCH = 100;
const ERASE_EVERY_BEATS = 30;
const LEAVE_EVERY_BEATS = 2;
const FORGET_EVERY_BEATS = 60;
const FORGET_BATCH = 1_000;

interface SeenBeat {
  readonly beat: bigint;
  /** Own monotonic time with committed beats during which `beat` did not change. */
  sinceMs: number;
}

export class Ownership {
  readonly #deps: ChatDeps;
  readonly #turns: ActiveTurns;
  readonly #dataDirId: string;
  readonly #commands: CommandListener;
  readonly #stop = new AbortController();
  readonly #seen = new Map<string, SeenBeat>();
  /** Incarnations whose turns are to be ended; tried again with each beat until none is left. */
  readonly #dead = new Set<string>();
  /** Seen at the last look for orphans. */
  #orphans = new Set<string>();
  readonly #tasks = new Map<string, Promise<void>>();
  #loop: Promise<void> = Promise.resolve();
  #beats = 0;

  constructor(deps: ChatDeps, turns: ActiveTurns, commands: CommandListener, dataDirId: string) {
    this.#deps = deps;
    this.#turns = turns;
    this.#commands = commands;
    this.#dataDirId = dataDirId;
  }

  /** Registers this process, recovers what its predecessors left, then keeps beating. Resolves after that first recovery. */
  async start(): Promise<void> {
    const { store, incarnation } = this.#deps;
    await store.registerProcess({ incarnation, dataDirId: this.#dataDirId });
    for (const other of await store.listProcesses(incarnation))
      if (other.dataDirId === this.#dataDirId) this.#dead.add(other.incarnation);
    this.#loop = this.#run();
    await this.#task("burying", () => this.#bury());
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    await Promise.all(this.#tasks.values());
    await this.#deps.store.forgetProcesses([this.#deps.incarnation]).catch(() => undefined); // its rows are found dead later
  }

  async #run(): Promise<void> {
    const { clock, logger } = this.#deps;
    const { signal } = this.#stop;
    let lastMs = clock.monotonicMs();
    for (;;) {
      await clock.sleep(BEAT_MS, signal).catch(() => undefined);
      if (signal.aborted) return;
      try {
        await this.#beat();
        const nowMs = clock.monotonicMs();
        await this.#observe(Math.min(nowMs - lastMs, 2 * BEAT_MS));
        lastMs = nowMs;
      } catch (error) {
        lastMs = clock.monotonicMs(); // time without own beats counts for nobody's death
        if (!signal.aborted) logger.warn({ err: error }, "a beat failed");
        continue;
      }
      void this.#task("burying", () => this.#bury());
      void this.#task("leaving", () => this.#leaveLost());
      void this.#task("commands", () => this.#commands.obey());
      void this.#task("fullness", () => this.#turns.checkFullness(signal));
      if (this.#beats++ % ERASE_EVERY_BEATS === 0)
        void this.#task("erasing", () => this.#eraseClosed(signal));
      if (this.#beats % FORGET_EVERY_BEATS === 0)
        void this.#task("forgetting events", () => this.#forgetEvents(signal));
    }
  }

  /** A process that was taken for dead and forgotten, and is not, says so. */
  async #beat(): Promise<void> {
    const { store, incarnation } = this.#deps;
    if (!(await store.beat(incarnation)))
      await store.registerProcess({ incarnation, dataDirId: this.#dataDirId });
  }

  /** Runs beside the beats, unless it still does. Never rejects: the next beat starts it anew. */
  #task(name: string, work: () => Promise<void>): Promise<void> {
    const running = this.#tasks.get(name);
    if (running) return running;
    const task = work()
      .catch((error: unknown) => {
        if (!this.#stop.signal.aborted) this.#deps.logger.warn({ err: error }, `${name} failed, tried again`);
      })
      .finally(() => this.#tasks.delete(name));
    this.#tasks.set(name, task);
    return task;
  }

  /** One look at the others' beats; `elapsedMs` = own time since the last look, with committed beats at both ends. */
  async #observe(elapsedMs: number): Promise<void> {
    const others = await this.#deps.store.listProcesses(this.#deps.incarnation);
    const present = new Set<string>();
    for (const { incarnation, beat } of others) {
      present.add(incarnation);
      const seen = this.#seen.get(incarnation);
      if (seen?.beat !== beat) this.#seen.set(incarnation, { beat, sinceMs: 0 });
      else if ((seen.sinceMs += elapsedMs) >= DEAD_AFTER_MS) this.#dead.add(incarnation);
    }
    for (const known of this.#seen.keys()) if (!present.has(known)) this.#seen.delete(known);
  }

  /** Ends the turns of dead processes and orphans, and forgets the processes that have none left. */
  async #bury(): Promise<void> {
    await this.#adoptOrphans();
    if (this.#dead.size === 0) return;
    const { store, logger } = this.#deps;
    const dead = [...this.#dead];
    for (;;) {
      const turns = await store.listOwnedTurns(dead, RECOVER_BATCH);
      if (turns.length === 0) break;
      logger.info(
        { turns: turns.length, processes: dead.length },
        "ending the turns of processes that are gone",
      );
      const before = turns.length;
      const failed = await this.#recoverAll(turns);
      if (failed === before) break; // the next beat tries again
    }
    await store.forgetProcesses(dead);
    for (const incarnation of dead) this.#dead.delete(incarnation); // seen dead again if it still has turns
  }

  async #leaveLost(): Promise<void> {
    const { store, incarnation } = this.#deps;
    if (this.#beats % LEAVE_EVERY_BEATS !== 0 || this.#turns.runningIds.length === 0) return;
    for (const turnId of await store.listLostTurns(incarnation, this.#turns.runningIds))
      this.#turns.get(turnId)?.fenced();
  }

  /** Ends the turns that are this process's and run nowhere. Seen twice, because an accept may be under way. */
  async #adoptOrphans(): Promise<void> {
    const { store, incarnation, logger } = this.#deps;
    if (!this.#turns.takeOrphanAlarm() && this.#orphans.size === 0) return;
    const before = this.#orphans;
    this.#orphans = new Set();
    try {
      const own = await store.listOwnedTurns([incarnation], MOST_OWN_TURNS);
      const alone = own.filter((turn) => !this.#turns.has(turn.turnId));
      for (const turn of alone) this.#orphans.add(turn.turnId);
      const adopted = alone.filter((turn) => before.has(turn.turnId));
      if (adopted.length === 0) return;
      logger.info({ turns: adopted.length }, "ending turns of this process that run nowhere");
      await this.#recoverAll(adopted);
    } catch (error) {
      this.#turns.suspectOrphans();
      throw error;
    }
  }

  async #recoverAll(turns: readonly TurnRow[]): Promise<number> {
    const waiting = [...turns];
    let failed = 0;
    const worker = async (): Promise<void> => {
      for (let row = waiting.shift(); row; row = waiting.shift()) {
        try {
          await this.#turns.recover(row, { kind: "interrupted" });
        } catch (error) {
          failed++;
          this.#deps.logger.error({ err: error, turnId: row.turnId }, "a turn could not be recovered yet");
        }
      }
    };
    await Promise.all(Array.from({ length: RECOVER_AT_ONCE }, worker));
    return failed;
  }

  async #forgetEvents(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await this.#deps.store.forgetSessionEvents(FORGET_BATCH)) === FORGET_BATCH);
  }

  async #eraseClosed(signal: AbortSignal): Promise<void> {
    const { store, log } = this.#deps;
    for (;;) {
      const turns = await store.listErasable(ERASE_AFTER_MS, ERASE_BATCH);
      for (const turn of turns) {
        await log.erase({ turnId: turn.turnId, partition: turn.partition }, signal);
        await store.markErased([turn.turnId]);
      }
      if (turns.length < ERASE_BATCH || signal.aborted) return;
    }
  }
}
