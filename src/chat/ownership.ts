/**
 * Who is alive, and what becomes of the turns of the dead (durability.md 4). It owns this process's beat and its view of
 * the others' beats.
 *
 * - Dead = the same beat was seen for DEAD_AFTER_MS of this process's own monotonic clock while its own beats kept
 *   committing: no wall clocks are compared, and an outage of Postgres makes nobody look dead.
 * - Who holds the data directory's lock takes its predecessors (same data directory) for dead at once.
 * - One recovery per turn at a time, few at once; whoever is slower finds the turn taken and leaves it.
 */
import type { TurnRow } from "../store/store.js";
import type { ActiveTurns } from "./active-turns.js";
import type { ChatDeps } from "./ports.js";
import { recoverTurn } from "./recover-turn.js";
import type { CommandListener } from "./stop-turn.js";

const BEAT_MS = 1_000;
const DEAD_AFTER_MS = 6_000;
const RECOVER_BATCH = 500;
const RECOVER_AT_ONCE = 8;
/** Entries of closed turns leave the log after this; their archive stays. */
const ERASE_AFTER_MS = 10 * 60_000;
const ERASE_BATCH = 100;
const ERASE_EVERY_BEATS = 30;

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
    const others = await store.listProcesses(incarnation);
    await this.#buryProcesses(
      others.filter((other) => other.dataDirId === this.#dataDirId).map((other) => other.incarnation),
    );
    this.#loop = this.#run();
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
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
        await this.#deps.store.beat(this.#deps.incarnation);
        const nowMs = clock.monotonicMs();
        await this.#observe(Math.min(nowMs - lastMs, 2 * BEAT_MS));
        lastMs = nowMs;
        await this.#commands.obey();
        await this.#turns.checkFullness(signal);
        if (this.#beats++ % ERASE_EVERY_BEATS === 0) await this.#eraseClosed(signal);
      } catch (error) {
        lastMs = clock.monotonicMs(); // time without own beats counts for nobody's death
        if (!signal.aborted) logger.warn({ err: error }, "a beat failed");
      }
    }
  }

  /** One look at the others' beats; `elapsedMs` = own time since the last look, with committed beats at both ends. */
  async #observe(elapsedMs: number): Promise<void> {
    const others = await this.#deps.store.listProcesses(this.#deps.incarnation);
    const dead: string[] = [];
    const present = new Set<string>();
    for (const { incarnation, beat } of others) {
      present.add(incarnation);
      const seen = this.#seen.get(incarnation);
      if (seen?.beat !== beat) this.#seen.set(incarnation, { beat, sinceMs: 0 });
      else if ((seen.sinceMs += elapsedMs) >= DEAD_AFTER_MS) dead.push(incarnation);
    }
    for (const known of this.#seen.keys()) if (!present.has(known)) this.#seen.delete(known);
    await this.#buryProcesses(dead);
  }

  /** Ends the turns of dead processes, and forgets the processes that have none left. */
  async #buryProcesses(dead: readonly string[]): Promise<void> {
    if (dead.length === 0) return;
    const { store, logger } = this.#deps;
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
  }

  async #recoverAll(turns: readonly TurnRow[]): Promise<number> {
    const waiting = [...turns];
    let failed = 0;
    const worker = async (): Promise<void> => {
      for (let row = waiting.shift(); row; row = waiting.shift()) {
        try {
          await recoverTurn(this.#deps, row, { kind: "interrupted" }, this.#turns.life);
        } catch (error) {
          failed++;
          this.#deps.logger.error({ err: error, turnId: row.turnId }, "a turn could not be recovered yet");
        }
      }
    };
    await Promise.all(Array.from({ length: RECOVER_AT_ONCE }, worker));
    return failed;
  }

  async #eraseClosed(signal: AbortSignal): Promise<void> {
    const { store, log } = this.#deps;
    const turns = await store.listErasable(ERASE_AFTER_MS, ERASE_BATCH);
    for (const turn of turns) await log.erase({ turnId: turn.turnId, partition: turn.partition }, signal);
    if (turns.length > 0) await store.markErased(turns.map((turn) => turn.turnId));
  }
}
