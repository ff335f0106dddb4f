/**
 * One turn that runs in this process, from its claim to its terminal packet. It owns the turn's AbortController (the one
 * place where stop, deadline, size limit, lost ownership and shutdown meet, with a typed reason) and its TurnWriter; the
 * loops (run-turn.ts, run-cycles.ts, stream-step.ts) only see the TurnContext.
 *
 * I2 the terminal is written once, here, after the commit. I4 `stop` resolves when no content can be appended any more.
 * I5 a fenced turn stops writing and leaves no trace. I9 whatever is thrown inside a turn becomes its typed end.
 */
import type { TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { ErrorCode, StopReason } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { whileUnavailable } from "../lib/retry.js";
import { deferred } from "../lib/signals.js";
import type { Claim } from "../replay/claim.js";
import type { ArchivePart, Checkpoint, TurnRow } from "../store/store.js";
import { closeOpen, type CloseHow } from "../turn/close-open.js";
import type { ChatDeps } from "./ports.js";
import { saveTextFile } from "./text-file.js";
import { FencedError, TurnWriter } from "./turn-writer.js";

/** Why a running turn is ended from outside its loops. */
export class TurnEnded extends Error {
  override readonly name = "TurnEnded";
  constructor(readonly stopReason: StopReason) {
    super(`the turn was ended: ${StopReason[stopReason]}`);
  }
}

/** What the loops see of their turn. */
export interface TurnContext {
  readonly deps: ChatDeps;
  readonly row: TurnRow;
  readonly epoch: number;
  /** Stores a private recovery row under the epoch; throws FencedError when another owner has the turn. */
  checkpoint(checkpoint: Checkpoint): Promise<void>;
  /** Stores a text that is too long for a packet; the file's id. */
  saveTextFile(name: string, text: string): Promise<string>;
}

export interface ActiveTurnOptions {
  readonly row: TurnRow;
  /** The claim in the log that makes this process the turn's writer. */
  readonly claim: Claim;
  /** Fold of what the log holds already; default: nothing. */
  readonly state?: TurnState;
  /** t_ms of the last packet of the log. Default 0. */
  readonly lastTMs?: number;
  /** The log has lost the turn's packets: write the archive only. Default false. */
  readonly logLost?: boolean;
  /** TurnStarted.started_at, ms: t_ms counts from it. */
  readonly startedAtMs: number;
  /** Aborts when the process gives up: then nothing of the turn is retried any more. */
  readonly life: AbortSignal;
}

export class ActiveTurn implements TurnContext {
  readonly deps: ChatDeps;
  readonly row: TurnRow;
  readonly writer: TurnWriter;
  readonly life: AbortSignal;
  readonly #controller = new AbortController();
  readonly #laneControllers = new Map<number, AbortController>();
  readonly #ended = deferred();

  constructor(deps: ChatDeps, options: ActiveTurnOptions) {
    const { row, life } = options;
    this.deps = deps;
    this.row = row;
    this.life = life;
    this.writer = new TurnWriter({
      log: deps.log,
      key: { turnId: row.turnId, partition: row.partition },
      clock: deps.clock,
      tick: deps.tick,
      incarnation: deps.incarnation,
      epoch: options.claim.epoch,
      position: options.claim.position,
      state: options.state,
      lastTMs: options.lastTMs,
      logLost: options.logLost,
      archivedSeq: row.archivedSeq,
      startedAtMs: options.startedAtMs,
      maxTurnBytes: deps.limits.maxTurnBytes,
      saveArchive: (part) => this.#saveArchive(part),
      onSizeLimit: () => this.end(StopReason.SIZE_LIMIT),
      onLogLost: () => this.abort(new TurnError(ErrorCode.LOG_TRUNCATED)),
      onFailure: (error) => this.abort(error instanceof FencedError ? error : TurnError.from(error)),
    });
    for (const lane of row.lanes) this.#laneControllers.set(lane.modelIndex, new AbortController());
    life.addEventListener("abort", this.#onLifeEnd, { once: true });
  }

  get epoch(): number {
    return this.writer.epoch;
  }

  get state(): TurnState {
    return this.writer.state;
  }

  /** Aborts with a TurnEnded, a FencedError or a TurnError when the whole turn ends from outside. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Aborts when the lane or the whole turn ends. */
  laneSignal(modelIndex: number): AbortSignal {
    return this.#laneControllers.get(modelIndex)!.signal;
  }

  /** Resolves when the turn has its terminal (or was lost to another owner). */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** The turn is over here, ended or lost: nothing holds it any more. */
  markEnded(): void {
    this.life.removeEventListener("abort", this.#onLifeEnd);
    this.#ended.resolve();
  }

  readonly #onLifeEnd = (): void => this.giveUp(TurnError.from(this.life.reason));

  /**
   * Ends the turn, or one of its lanes: drops what is queued, cancels the model call and the tools, and resolves with the
   * seq after which no content follows. The closing packets and the terminal come after it.
   */
  async stop(reason: StopReason, modelIndex?: number): Promise<number> {
    const sealed = this.writer.seal(modelIndex);
    if (modelIndex === undefined) this.abort(new TurnEnded(reason));
    else this.#stopLane(modelIndex, reason);
    return sealed;
  }

  /** As `stop`, for callers that need no answer: a writer that has failed fails the turn's own loop. */
  end(reason: StopReason): void {
    this.stop(reason).catch(() => undefined);
  }

  abort(reason: TurnEnded | FencedError | TurnError): void {
    if (this.#controller.signal.aborted) return;
    this.#controller.abort(reason);
    for (const lane of this.#laneControllers.values()) lane.abort(reason);
  }

  #stopLane(modelIndex: number, stopReason: StopReason): void {
    const lane = this.#laneControllers.get(modelIndex);
    if (!lane || lane.signal.aborted) return;
    lane.abort(new TurnEnded(stopReason));
    this.#closeLane(modelIndex, { kind: "stopped", stopReason, modelIndex });
  }

  /** At once, before the lane's loop can end: the turn must not end without it. A failed writer fails the turn itself. */
  #closeLane(modelIndex: number, how: CloseHow): void {
    if (!this.writer.failed) this.writer.close((state) => closeOpen(state, { ...how, modelIndex }));
  }

  /** Nothing more is done for the turn here: no retry goes on, no call stays open. */
  giveUp(reason: FencedError | TurnError): void {
    this.writer.abandon();
    this.abort(reason);
  }

  async checkpoint(checkpoint: Checkpoint): Promise<void> {
    const save = (): Promise<boolean> =>
      this.deps.store.saveCheckpoint(this.row.turnId, this.epoch, checkpoint);
    if (!(await whileUnavailable(save, this.deps.clock, this.signal))) throw this.fenced();
  }

  async #saveArchive(part: ArchivePart): Promise<void> {
    const save = (): Promise<boolean> => this.deps.store.saveArchivePart(this.row.turnId, this.epoch, part);
    if (!(await whileUnavailable(save, this.deps.clock, this.life))) throw this.fenced();
  }

  saveTextFile(name: string, text: string): Promise<string> {
    const fileId = this.deps.newId(); // one for all attempts: an answer that was lost leaves no second file
    const save = (): Promise<string> => saveTextFile(this.deps, this.row, this.epoch, fileId, name, text);
    return whileUnavailable(save, this.deps.clock, this.signal);
  }

  fenced(): FencedError {
    const error = new FencedError("another process owns the turn");
    this.giveUp(error);
    return error;
  }
}
