/**
 * The port of the relational store: what the orchestrator and the edge need of Postgres, named for the need.
 *
 * Rules for every adapter (durability.md numbers in brackets are the design's):
 * - Tenant and user stand on every row, and every call that serves a client carries its Principal: rows of others are
 *   not found, in the same words and the same time class as rows that are not there (I12).
 * - A turn-scoped write by the writer carries (turnId, epoch) and is guarded on the turn row: `FOR SHARE` for all but the
 *   commit, `FOR UPDATE` for the commit. No row = fenced: the method answers false / "fenced" and writes nothing (I5).
 * - No method holds a connection while anything streams. Every method has a statement timeout and fails with a TurnError
 *   UNAVAILABLE when Postgres is gone; INTERNAL keeps the cause.
 * - Protobuf values are stored as their binary encoding; ids are text.
 */
import type { Owner, Principal } from "../lib/rpc/service-binding.js";

export interface Page {
  /** 1..; the adapter caps it at 200. */
  readonly size: number;
  /** Opaque, from the last page; "" = first page. A token that cannot be read is INVALID_ARGUMENT. */
  readonly token: string;
}
export interface Paged<T> {
  readonly rows: readonly T[];
  /** "" = no more. */
  readonly nextToken: string;
}

export interface SessionRow {
  readonly sessionId: string;
  readonly title: string;
  readonly tags: readonly string[];
  /** Encoding of chat.v1.SessionSettings. */
  readonly settings: Uint8Array;
  readonly currentMessageId: string;
  readonly createTime: Date;
  readonly updateTime: Date;
  readonly revision: bigint;
  readonly archived: boolean;
}

export interface MessageRow {
  readonly messageId: string;
  readonly sessionId: string;
  /** "" = a root. */
  readonly parentMessageId: string;
  readonly turnId: string;
  /** Set on assistant messages. */
  readonly modelIndex: number | undefined;
  readonly role: "user" | "assistant";
  /** Encoding of packet.v1.UserInput (user messages; full text, however long). */
  readonly input: Uint8Array | undefined;
  /** Encoding of chat.v1.LaneState (assistant messages, after the commit). */
  readonly answer: Uint8Array | undefined;
  readonly createTime: Date;
  readonly childMessageIds: readonly string[];
  /** All that follow the same parent, this one included, oldest first. */
  readonly siblingMessageIds: readonly string[];
  /** What its user thinks of an answer: 1, -1, 0. */
  readonly rating: number;
}

/** A message found by its words. */
export interface FoundMessage {
  readonly message: MessageRow;
  readonly sessionTitle: string;
  /** The beginning of its plain text, for a snippet. */
  readonly text: string;
}

/** Fields of a session to change; a field left out stays. */
export interface SessionChanges {
  readonly title?: string;
  readonly tags?: readonly string[];
  /** Encoding of chat.v1.SessionSettings. */
  readonly settings?: Uint8Array;
  readonly archived?: boolean;
}

/** Something that happened to a session; it names what changed, and what that is like now can be read. */
export type SessionEventRow =
  | { readonly kind: "updated" | "deleted"; readonly sessionId: string }
  | { readonly kind: "turn_started" | "turn_ended"; readonly sessionId: string; readonly turnId: string }
  | MessageEvent;

/** An event that is told with its content. */
export interface MessageEvent {
  readonly kind: "document" | "document_deleted" | "title" | "tags" | "follow_ups";
  /** "" for documents. */
  readonly sessionId: string;
  /** Encoding of chat.v1.SourceDocument (a deleted one has its id only), packet.v1.SessionTitle, SessionTags or FollowUps. */
  readonly data: Uint8Array;
}

export interface SessionEvents {
  /** In the order in which they happened to each session. */
  readonly rows: readonly SessionEventRow[];
  /** For the next read. */
  readonly token: string;
  /** True: events between the token and now are not told one by one (too many, or too long ago); `rows` is empty then. */
  readonly missed: boolean;
}

/** running -> committed (final rows and terminal bytes stored) -> closed (terminal is in the log). */
export type TurnPhase = "running" | "committed" | "closed";

export interface TurnRow {
  readonly turnId: string;
  readonly sessionId: string;
  readonly tenantId: string;
  readonly userId: string;
  readonly requestId: string;
  readonly partition: number;
  readonly logId: string;
  readonly phase: TurnPhase;
  readonly epoch: number;
  /** Incarnation of the process that owns the turn. */
  readonly owner: string;
  readonly userMessageId: string;
  /** Encoding of the AcceptedTurn's `plan` as given at accept; opaque to the store. */
  readonly plan: Uint8Array;
  readonly sessionCreated: boolean;
  readonly startTime: Date;
  readonly endTime: Date | undefined;
  /** Numbers of packet.v1.TurnOutcome / StopReason; 0 while running. */
  readonly outcome: number;
  readonly stopReason: number;
  /** Encoding of packet.v1.Usage, after the commit. */
  readonly usage: Uint8Array | undefined;
  /** Seq of the terminal packet and its exact batch bytes (one PacketBatch); after the commit. */
  readonly terminalSeq: number;
  readonly terminalBatch: Uint8Array | undefined;
  readonly archivedSeq: number;
  readonly lanes: readonly LaneRow[];
}

export interface LaneRow {
  readonly modelIndex: number;
  readonly modelId: string;
  readonly messageId: string;
  /** Number of packet.v1.TurnOutcome; 0 while running. */
  readonly outcome: number;
  readonly usage: Uint8Array | undefined;
}

export interface AcceptInput {
  readonly principal: Principal;
  readonly requestId: string;
  /** Hash over the canonical validated fields: the same request_id with another hash is a conflict. */
  readonly requestHash: string;
  /** "" = create the session. */
  readonly sessionId: string;
  /** For a created session: encoding of SessionSettings and a first title. */
  readonly newSession: { readonly sessionId: string; readonly settings: Uint8Array; readonly title: string };
  /** What a new user message follows: "" = nothing, undefined = the end of the current branch (session.currentMessageId). */
  readonly parentMessageId: string | undefined;
  readonly turnId: string;
  readonly userMessageId: string;
  /** Encoding of UserInput; undefined = the user message is there, and gets further answers. */
  readonly userInput: Uint8Array | undefined;
  /** The plain text of the user message, for search. */
  readonly searchText: string;
  readonly lanes: readonly {
    readonly modelIndex: number;
    readonly modelId: string;
    readonly messageId: string;
  }[];
  readonly partition: number;
  readonly logId: string;
  readonly owner: string;
  /** Opaque to the store; read back with the turn. */
  readonly plan: Uint8Array;
}

export type AcceptOutcome =
  /** `stopRequested`: a StopTurn for this request_id came before the send; the turn must end stopped, calling nothing. */
  | {
      readonly kind: "accepted";
      readonly turn: TurnRow;
      readonly session: SessionRow;
      readonly stopRequested: boolean;
    }
  | RepeatOutcome
  | { readonly kind: "busy"; readonly turnId: string }
  | { readonly kind: "session_not_found" }
  /** What the turn follows or answers: not there, not the caller's, of another session, or not of the role it must have. */
  | { readonly kind: "parent_not_found" };

/** The request_id was accepted before: by the same request, or by another one. */
export type RepeatOutcome =
  { readonly kind: "replayed"; readonly turn: TurnRow } | { readonly kind: "conflict" };

export interface ToolCallRow {
  readonly callId: string;
  readonly modelIndex: number;
  readonly cycle: number;
  readonly toolId: string;
  readonly argumentsJson: string;
  /** Number of packet.v1.ToolCallStatus. */
  readonly status: number;
  readonly modelText: string;
}

export interface CommitInput {
  readonly turnId: string;
  readonly epoch: number;
  readonly outcome: number;
  readonly stopReason: number;
  readonly usage: Uint8Array;
  readonly terminalSeq: number;
  readonly terminalBatch: Uint8Array;
  readonly endTime: Date;
  readonly lanes: readonly {
    readonly modelIndex: number;
    readonly messageId: string;
    readonly modelId: string;
    readonly outcome: number;
    readonly usage: Uint8Array;
    /** Encoding of LaneState; and its plain answer text for search. */
    readonly answer: Uint8Array;
    readonly text: string;
    readonly toolCalls: readonly ToolCallRow[];
    readonly citations: readonly {
      readonly number: number;
      readonly document: Uint8Array;
      readonly documentId: string;
    }[];
  }[];
  /** The last archive part (packets acked since the last part, and not the terminal). */
  readonly archive: ArchivePart | undefined;
}

/** Concatenated PacketBatch bytes: again a PacketBatch. Parts of a turn are dense and in order. */
export interface ArchivePart {
  readonly firstSeq: number;
  readonly lastSeq: number;
  readonly batch: Uint8Array;
}

/** Private recovery rows, append-only (never a copy of history). */
export type Checkpoint =
  | { readonly kind: "input"; readonly modelIndex: number; readonly data: Uint8Array }
  | { readonly kind: "cycle"; readonly modelIndex: number; readonly cycle: number; readonly data: Uint8Array }
  | {
      readonly kind: "dispatching";
      readonly modelIndex: number;
      readonly cycle: number;
      readonly callId: string;
      readonly data: Uint8Array;
    }
  | {
      readonly kind: "result";
      readonly modelIndex: number;
      readonly cycle: number;
      readonly callId: string;
      readonly data: Uint8Array;
    };

export interface FileRow {
  readonly fileId: string;
  readonly name: string;
  readonly mediaType: string;
  readonly sizeBytes: bigint;
  readonly sha256: string;
  readonly turnId: string;
  readonly createTime: Date;
}

export type StopTarget =
  | { readonly kind: "turn"; readonly turnId: string }
  | { readonly kind: "request"; readonly requestId: string }
  | { readonly kind: "session"; readonly sessionId: string };

export type StopRequestOutcome =
  | { readonly kind: "requested"; readonly turn: TurnRow }
  /** The turn has ended (or is committed): nothing to stop. */
  | { readonly kind: "ended"; readonly turn: TurnRow }
  /** No turn of this request yet: a tombstone is kept for 10 minutes; the send will end stopped. */
  | { readonly kind: "tombstone" }
  /** The session is there and runs no turn. */
  | { readonly kind: "idle" }
  | { readonly kind: "not_found" };

export interface TurnCommand {
  readonly turnId: string;
  readonly kind: "stop";
  /** undefined = the whole turn. */
  readonly modelIndex: number | undefined;
}

export interface Store {
  // ---- sessions and messages -------------------------------------------------------------------------------------
  /** Idempotent by requestId ("" = not): the same principal and requestId gives the same session. */
  createSession(
    principal: Principal,
    input: {
      sessionId: string;
      requestId: string;
      settings: Uint8Array;
      title: string;
      tags: readonly string[];
    },
  ): Promise<SessionRow>;
  getSession(principal: Principal, sessionId: string): Promise<SessionRow | undefined>;
  /** Newest update first. */
  listSessions(
    principal: Principal,
    page: Page,
    filter: { query: string; onlyActive: boolean },
  ): Promise<Paged<SessionRow>>;
  /** Removes the session with its messages, turns, archive, files; false = not there. Answers the turns whose logs to erase. */
  deleteSession(
    principal: Principal,
    sessionId: string,
  ): Promise<{ readonly turns: readonly TurnRow[] } | undefined>;
  /**
   * `ancestorsOf`: the branch from the root to that message (inclusive); `childrenOf`: its direct children. Oldest first;
   * `newestFirst` turns that round, and reads no more of a branch than the page.
   */
  listMessages(
    principal: Principal,
    sessionId: string,
    page: Page,
    filter: { ancestorsOf: string; childrenOf: string; newestFirst?: boolean },
  ): Promise<Paged<MessageRow> | undefined>;
  /** The branch that ends in `messageId`, root first, newest `limit` of it. */
  branch(principal: Principal, messageId: string, limit: number): Promise<readonly MessageRow[]>;
  /** Those of the sessions that are the caller's. */
  getSessions(principal: Principal, sessionIds: readonly string[]): Promise<readonly SessionRow[]>;
  /** The session after the change; undefined = not there. */
  updateSession(
    principal: Principal,
    sessionId: string,
    changes: SessionChanges,
  ): Promise<SessionRow | undefined>;
  /**
   * Makes the branch through a message the current one: it ends in the newest message below. A message of the current
   * branch changes nothing.
   */
  selectMessage(
    principal: Principal,
    sessionId: string,
    messageId: string,
  ): Promise<SessionRow | "session_not_found" | "message_not_found">;
  /** Best first, of all the caller's sessions. `query`: words; what holds none finds nothing. */
  searchMessages(principal: Principal, query: string, page: Page): Promise<Paged<FoundMessage>>;
  setFeedback(
    principal: Principal,
    messageId: string,
    feedback: { readonly rating: number; readonly comment: string; readonly reasons: readonly string[] },
  ): Promise<"stored" | "not_found" | "not_an_answer">;

  // ---- events of sessions ------------------------------------------------------------------------------------------
  // Whatever changes a session, or starts or ends a turn, also leaves its event, in the same transaction.
  /** Tells whoever watches the caller's sessions of something that is told with its content. */
  publishSessionEvent(principal: Principal, event: MessageEvent): Promise<void>;
  /** Calls those who watch the owner: the transaction of a change has left an event. */
  wakeWatchers(owner: Owner): void;
  /** What happened to the caller's sessions since the token; "" = nothing, only where to begin. INVALID_ARGUMENT: not ours. */
  readSessionEvents(principal: Principal, token: string): Promise<SessionEvents>;
  /** Calls `wake` when there may be events of the principal, and after each (re)connect of the listener. Returns unsubscribe. */
  onSessionEvent(principal: Principal, wake: () => void): () => void;
  /** Removes events that are too old to be told, at most `limit`; answers how many. */
  forgetSessionEvents(limit: number): Promise<number>;

  // ---- turns ---------------------------------------------------------------------------------------------------------
  /** One transaction: session, parent, busy check, user message, reserved assistant messages, turn, lanes, request_id. */
  acceptTurn(input: AcceptInput): Promise<AcceptOutcome>;
  /** What a repeat of an accepted request gets; undefined = none of this id was accepted. */
  findAccepted(
    principal: Principal,
    requestId: string,
    requestHash: string,
  ): Promise<RepeatOutcome | undefined>;
  getTurn(principal: Principal, turnId: string): Promise<TurnRow | undefined>;
  getTurnByRequest(principal: Principal, requestId: string): Promise<TurnRow | undefined>;
  listTurns(
    principal: Principal,
    page: Page,
    filter: { sessionId: string; phases: readonly TurnPhase[] },
  ): Promise<Paged<TurnRow>>;
  /** Those of the turns that are the caller's. */
  getTurns(principal: Principal, turnIds: readonly string[]): Promise<readonly TurnRow[]>;
  /** The turns that run in these sessions. */
  listRunningTurns(principal: Principal, sessionIds: readonly string[]): Promise<readonly TurnRow[]>;
  /** The same row without a principal: for owners, recovery and janitors. */
  loadTurn(turnId: string): Promise<TurnRow | undefined>;

  // ---- the writer's rows (guarded by epoch; false = fenced) --------------------------------------------------------
  /** Sets the epoch the writer claimed in the log, if the row still has `fromEpoch`, the owner, and (when given) the log. */
  takeTurn(
    turnId: string,
    fromEpoch: number,
    toEpoch: number,
    owner: string,
    logId?: string,
  ): Promise<boolean>;
  saveCheckpoint(turnId: string, epoch: number, checkpoint: Checkpoint): Promise<boolean>;
  listCheckpoints(turnId: string): Promise<readonly Checkpoint[]>;
  saveArchivePart(turnId: string, epoch: number, part: ArchivePart): Promise<boolean>;
  /** Parts with lastSeq > afterSeq, in order; one row in memory at a time is enough. */
  readArchive(turnId: string, afterSeq: number): AsyncIterable<ArchivePart>;
  commitTurn(input: CommitInput): Promise<"committed" | "fenced">;
  /** After the terminal is in the log. Idempotent. */
  markClosed(turnId: string): Promise<void>;
  /** Closed turns whose log entries may be erased: closed for longer than `olderThanMs`, not erased yet. */
  listErasable(olderThanMs: number, limit: number): Promise<readonly TurnRow[]>;
  markErased(turnIds: readonly string[]): Promise<void>;

  // ---- files ---------------------------------------------------------------------------------------------------------
  /** Stores a whole text or blob that is too long for a packet, under the turn's epoch. false = fenced. */
  saveFile(principal: Principal, epoch: number, file: FileRow, data: Uint8Array): Promise<boolean>;
  getFile(principal: Principal, fileId: string): Promise<FileRow | undefined>;
  /** Parts of at most 256 KiB from `offset`. */
  readFile(principal: Principal, fileId: string, offset: bigint): AsyncIterable<Uint8Array>;

  // ---- commands ----------------------------------------------------------------------------------------------------
  /** Stores the stop (unique per turn and lane) and wakes the owner (NOTIFY). */
  requestStop(
    principal: Principal,
    target: StopTarget,
    modelIndex: number | undefined,
  ): Promise<StopRequestOutcome>;
  /** Whether a stop of the whole turn was ever asked for, answered or not. */
  wasAskedToStop(turnId: string): Promise<boolean>;
  /** Open commands of turns owned by `owner`. */
  listCommands(owner: string): Promise<readonly TurnCommand[]>;
  /** The owner's answer to the stops of one lane, or of the whole turn and all its lanes; wakes whoever waits in `waitStopped`. */
  answerStop(turnId: string, stopSeq: number, modelIndex?: number): Promise<void>;
  /** The owner's answer, or the terminal's seq if the turn ended meanwhile; undefined after `timeoutMs`. */
  waitStopped(turnId: string, timeoutMs: number, signal: AbortSignal): Promise<number | undefined>;
  /** Calls `wake` when a command for `owner` was stored, and after each (re)connect of the listener. Returns unsubscribe. */
  onCommand(owner: string, wake: () => void): () => void;

  // ---- processes ---------------------------------------------------------------------------------------------------
  registerProcess(input: { incarnation: string; dataDirId: string }): Promise<void>;
  /** Commits one more beat of this process; false = it is not registered (any more): others took it for dead. */
  beat(incarnation: string): Promise<boolean>;
  /** All processes with running or committed turns, or beats, but `incarnation`; for the observer of beats. */
  listProcesses(
    incarnation: string,
  ): Promise<readonly { readonly incarnation: string; readonly dataDirId: string; readonly beat: bigint }[]>;
  /** Turns (running or committed) that these incarnations own, oldest first. */
  listOwnedTurns(owners: readonly string[], limit: number): Promise<readonly TurnRow[]>;
  /** Those of the turns that are another owner's by now, or deleted. */
  listLostTurns(owner: string, turnIds: readonly string[]): Promise<readonly string[]>;
  /** Removes the process rows that own no open turn. */
  forgetProcesses(incarnations: readonly string[]): Promise<void>;

  ping(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}
