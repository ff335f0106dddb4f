/**
 * The turns that run in this process: starts them, finds them, ends them on deadline, size, full log and shutdown. It
 * owns no turn's content. A client's disconnect is not among the things it knows of.
 */
import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { ModelMessage } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode, StopReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { whileUnavailable } from "../lib/retry.js";
import { claimTurn } from "../replay/claim.js";
import type { TurnRow } from "../store/store.js";
import type { TurnPlan } from "./resolve-plan.js";
import { ActiveTurn } from "./active-turn.js";
import { packet } from "../turn/packets.js";
import { turnPlacement } from "../turn/placement.js";
import type { ChatDeps } from "./ports.js";
import { runTurn } from "./run-turn.js";
import { saveTextFile } from "./text-file.js";
import { recoverTurn, type RecoveryReason } from "./recover-turn.js";
import { FencedError } from "./turn-writer.js";

/** Running turns end with size_limit from this fullness of the log; what is left is for claims and terminals. */
const END_TURNS_AT_FULLNESS = 0.9;

/** How long the ends of turns may take at shutdown; what is not ended then is recovered by whoever comes next. */
const ENDS_OF_TURNS_MS = 5_000;

export class ActiveTurns {
  readonly #deps: ChatDeps;
  readonly #life = new AbortController();
  /** From the accept on; resolved when the claim and TurnStarted are in the log. */
  readonly #turns = new Map<string, Promise<ActiveTurn>>();
  readonly #running = new Map<string, ActiveTurn>();
  /** Turns that are being ended here for an owner that is gone. */
  readonly #recoveries = new Map<string, Promise<number | undefined>>();
  /** Sends that were admitted and whose accept is under way. */
  readonly #accepting = new Set<Promise<unknown>>();
  readonly #draining = new AbortController();
  #mayHaveOrphans = false;

  constructor(deps: ChatDeps) {
    this.#deps = deps;
  }

  /** Aborts when the process gives up on its turns. */
  get life(): AbortSignal {
    return this.#life.signal;
  }

  /** Aborts when the process takes no new turns any more, and those that run have a while to end. */
  get draining(): AbortSignal {
    return this.#draining.signal;
  }

  get size(): number {
    return this.#turns.size;
  }

  /** A turn that runs here and has its claim. */
  get(turnId: string): ActiveTurn | undefined {
    return this.#running.get(turnId);
  }

  /** The turns that run here and have their claim. */
  get runningIds(): string[] {
    return [...this.#running.keys()];
  }

  /** A turn that runs here, once it has its claim. */
  find(turnId: string): Promise<ActiveTurn> | undefined {
    return this.#turns.get(turnId);
  }

  /**
   * Ends a turn whose owner is gone (recover-turn.ts), once at a time: whoever asks meanwhile gets the same answer. When it
   * fails the turn may be this process's and run nowhere: see `takeOrphanAlarm`.
   */
  recover(row: TurnRow, reason: RecoveryReason): Promise<number | undefined> {
    const running = this.#recoveries.get(row.turnId);
    if (running) return running;
    const recovery = recoverTurn(this.#deps, row, reason, this.life)
      .catch((error: unknown) => {
        this.suspectOrphans();
        throw error;
      })
      .finally(() => this.#recoveries.delete(row.turnId));
    this.#recoveries.set(row.turnId, recovery);
    return recovery;
  }

  /** Whether the turn runs or is being recovered here. */
  has(turnId: string): boolean {
    return this.#turns.has(turnId) || this.#recoveries.has(turnId);
  }

  /** Something failed after which a turn may be stored as this process's and run nowhere. */
  suspectOrphans(): void {
    this.#mayHaveOrphans = true;
  }

  /** True once after `suspectOrphans`: the caller looks for them (I9). */
  takeOrphanAlarm(): boolean {
    const alarm = this.#mayHaveOrphans;
    this.#mayHaveOrphans = false;
    return alarm;
  }

  /** Throws OVERLOADED or UNAVAILABLE when no further turn may start here. The first thing that an accept does. */
  admit(): void {
    if (this.draining.aborted)
      throw new TurnError(ErrorCode.UNAVAILABLE, {
        message: "the server is shutting down, try again",
        retryAfterMs: 1_000,
      });
    if (this.#turns.size + this.#accepting.size >= this.#deps.limits.maxRunningTurns)
      throw new TurnError(ErrorCode.OVERLOADED, { retryAfterMs: 1_000 });
  }

  /** Runs an accept that was admitted: a shutdown waits for the turn that it may give. */
  async accepting<T>(accept: () => Promise<T>): Promise<T> {
    const accepted = accept();
    const settled = accepted.catch(() => undefined);
    this.#accepting.add(settled);
    try {
      return await accepted;
    } finally {
      this.#accepting.delete(settled);
    }
  }

  /** Starts an accepted turn. It runs on by itself from here, whoever reads it or does not. */
  start(
    row: TurnRow,
    plan: TurnPlan,
    assemble: () => Promise<readonly ModelMessage[]>,
    stopRequested: boolean,
  ): void {
    const claimed = this.#begin(row, plan);
    this.#turns.set(row.turnId, claimed);
    void this.#run(row, plan, claimed, assemble, stopRequested);
  }

  async #run(
    row: TurnRow,
    plan: TurnPlan,
    claimed: Promise<ActiveTurn>,
    assemble: () => Promise<readonly ModelMessage[]>,
    stopRequested: boolean,
  ): Promise<void> {
    const { logger } = this.#deps;
    try {
      const turn = await claimed;
      this.#running.set(row.turnId, turn);
      const deadline = this.#armDeadline(turn, plan.deadlineMs);
      try {
        if (stopRequested) turn.end(StopReason.USER_CANCELLED);
        await runTurn(turn, plan, assemble);
      } finally {
        deadline.abort();
        turn.markEnded();
      }
    } catch (error) {
      if (error instanceof FencedError)
        logger.warn({ turnId: row.turnId }, "the turn belongs to another process now");
      else {
        logger.error({ err: error, turnId: row.turnId }, "the turn could not be ended, it is recovered");
        this.suspectOrphans();
      }
      const turn = await claimed.catch(() => undefined);
      turn?.giveUp(error instanceof FencedError ? error : TurnError.from(error));
      turn?.markEnded();
    } finally {
      this.#turns.delete(row.turnId);
      this.#running.delete(row.turnId);
    }
  }

  async #begin(row: TurnRow, plan: TurnPlan): Promise<ActiveTurn> {
    const { log, clock, incarnation } = this.#deps;
    const key = { turnId: row.turnId, partition: row.partition };
    const claim = await claimTurn(log, key, {
      minEpoch: row.epoch,
      incarnation,
      signal: this.life,
      firstClaim: true,
      clock,
    });
    if (claim.lastEntry !== undefined || claim.epoch !== row.epoch)
      throw new FencedError("the turn was claimed by another process");
    const textFileId = plan.started.input?.textFileId;
    if (textFileId)
      await whileUnavailable(
        () => saveTextFile(this.#deps, row, row.epoch, textFileId, "message.txt", plan.input.text),
        clock,
        this.life,
      );
    const turn = new ActiveTurn(this.#deps, {
      row,
      claim,
      startedAtMs: timestampMs(plan.started.startedAt!),
      life: this.life,
    });
    // In the log before anybody can stop the turn: whatever ends it, it has begun.
    await turn.writer.write([packet("turnStarted", plan.started, turnPlacement())]);
    await turn.writer.flush();
    return turn;
  }

  #armDeadline(turn: ActiveTurn, deadlineMs: number): AbortController {
    const timer = new AbortController();
    this.#deps.clock.sleep(deadlineMs, timer.signal).then(
      () => turn.end(StopReason.DEADLINE),
      () => undefined, // the turn ended first
    );
    return timer;
  }

  /** Called every second or so: ends running turns while the log still has room for their ends. */
  async checkFullness(signal: AbortSignal): Promise<void> {
    if (this.#running.size === 0 || (await this.#deps.log.fullness(signal)) < END_TURNS_AT_FULLNESS) return;
    for (const turn of this.#running.values()) turn.end(StopReason.SIZE_LIMIT);
  }

  /** No new turns; running ones get `graceMs` to end by themselves, then end as interrupted; then the process gives up. */
  async drain(graceMs: number): Promise<void> {
    this.#draining.abort();
    const { clock } = this.#deps;
    const allEnded = async (): Promise<void> => {
      await Promise.all(this.#accepting);
      await Promise.resolve(); // what was accepted is started now
      await Promise.allSettled([...this.#turns.values()].map(async (turn) => (await turn).ended));
    };
    const within = async (ms: number): Promise<void> => {
      const timer = new AbortController();
      await Promise.race([allEnded(), clock.sleep(ms, timer.signal).catch(() => undefined)]);
      timer.abort();
    };
    await within(graceMs);
    for (const turn of this.#running.values()) turn.end(StopReason.OWNER_LOST);
    await within(ENDS_OF_TURNS_MS);
    const gone = new TurnError(ErrorCode.UNAVAILABLE, { message: "the server has shut down" });
    this.#life.abort(gone);
    for (const turn of this.#running.values()) turn.giveUp(gone);
  }
}
