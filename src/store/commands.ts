/**
 * Stops: stored first, so that they survive anybody's crash, then pointed out to the turn's owner by NOTIFY; the owner's
 * answer goes back the same way.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import { TOMBSTONE_LIFE } from "./accept-turn.js";
import type { Db, Queryable } from "./db.js";
import type { Listener } from "./listener.js";
import type { StopRequestOutcome, StopTarget, Store, TurnCommand, TurnRow } from "./store.js";
import { selectTurns, toTurnRow, type RawTurn } from "./turn-rows.js";

export type CommandMethods = Pick<
  Store,
  "requestStop" | "wasAskedToStop" | "listCommands" | "answerStop" | "waitStopped" | "onCommand"
>;

const STOP = 1;
const WHOLE_TURN = -1;
/** How often a waiter looks by itself, should the wake-up get lost. */
const LOOK_EVERY_MS = 200;

export function commandMethods(db: Db, listener: Listener): CommandMethods {
  return {
    requestStop: (principal, target, modelIndex) =>
      db.readers.transaction((tx) => requestStop(tx, principal, target, modelIndex)),
    wasAskedToStop: async (turnId) => {
      const found = await db.writers.query(
        {
          name: "was_asked_to_stop",
          text: `select 1 from turnwire.turn_commands where turn_id = $1 and kind = ${STOP} and model_index = ${WHOLE_TURN}`,
        },
        [turnId],
      );
      return found.length > 0;
    },
    listCommands: (owner) => listCommands(db, owner),
    answerStop: (turnId, stopSeq, modelIndex) => answerStop(db, turnId, stopSeq, modelIndex),
    waitStopped: (turnId, timeoutMs, signal) => waitStopped(db, listener, turnId, timeoutMs, signal),
    onCommand: (owner, wake) =>
      listener.subscribe("turnwire_command", (payload) => {
        if (payload === undefined || payload === owner) wake();
      }),
  };
}

async function requestStop(
  tx: Queryable,
  principal: Principal,
  target: StopTarget,
  modelIndex: number | undefined,
): Promise<StopRequestOutcome> {
  switch (target.kind) {
    case "turn":
      return stopTurn(tx, principal, target.turnId, modelIndex);
    case "request": {
      const turnId = await stopRequest(tx, principal, target.requestId);
      return turnId === null ? { kind: "tombstone" } : stopTurn(tx, principal, turnId, modelIndex);
    }
    case "session": {
      const turnId = await runningTurn(tx, principal, target.sessionId);
      if (turnId === undefined) return { kind: "not_found" };
      return turnId === null ? { kind: "idle" } : stopTurn(tx, principal, turnId, modelIndex);
    }
  }
}

/** The turn of the request; null = it has none yet, and a tombstone now waits for it. Waits for an accept in flight. */
async function stopRequest(
  tx: Queryable,
  { tenantId, userId }: Principal,
  requestId: string,
): Promise<string | null> {
  const rows = await tx.query<{ turn_id: string | null }>(
    `insert into turnwire.turn_requests as r (tenant_id, user_id, request_id, stop_time) values ($1, $2, $3, clock_timestamp())
     on conflict (tenant_id, user_id, request_id) do update set stop_time = excluded.stop_time
     returning r.turn_id`,
    [tenantId, userId, requestId],
  );
  const turnId = rows[0]!.turn_id;
  if (turnId === null) await forgetOldTombstones(tx);
  return turnId;
}

/** A few at a time, and none that another transaction is at. */
async function forgetOldTombstones(tx: Queryable): Promise<void> {
  await tx.query(
    `delete from turnwire.turn_requests where turn_id is null and ctid in (
       select ctid from turnwire.turn_requests where turn_id is null and stop_time < clock_timestamp() - ${TOMBSTONE_LIFE}
       limit 20 for update skip locked)`,
  );
}

/** The turn that the session runs; null = none; undefined = no such session. */
async function runningTurn(
  tx: Queryable,
  { tenantId, userId }: Principal,
  sessionId: string,
): Promise<string | null | undefined> {
  const rows = await tx.query<{ turn_id: string | null }>(
    `select t.turn_id from turnwire.sessions s left join turnwire.turns t on t.session_id = s.session_id and t.phase = 1
     where s.session_id = $1 and s.tenant_id = $2 and s.user_id = $3`,
    [sessionId, tenantId, userId],
  );
  return rows[0] && rows[0].turn_id;
}

async function stopTurn(
  tx: Queryable,
  { tenantId, userId }: Principal,
  turnId: string,
  modelIndex: number | undefined,
): Promise<StopRequestOutcome> {
  // The lock keeps the commit away until the command is in: it is stored for a running turn, or not at all.
  const turn = await readTurn(tx, `t.turn_id = $1 and t.tenant_id = $2 and t.user_id = $3 for share of t`, [
    turnId,
    tenantId,
    userId,
  ]);
  if (!turn) return { kind: "not_found" };
  if (turn.phase !== "running") return { kind: "ended", turn };
  if (modelIndex !== undefined && !turn.lanes.some((lane) => lane.modelIndex === modelIndex)) {
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: `the turn has no lane ${modelIndex}`,
      details: { field: "model_index" },
    });
  }
  await tx.query(
    `insert into turnwire.turn_commands (turn_id, kind, model_index, tenant_id, user_id) values ($1, ${STOP}, $2, $3, $4) on conflict do nothing`,
    [turnId, modelIndex ?? WHOLE_TURN, tenantId, userId],
  );
  await tx.query("select pg_notify('turnwire_command', $1)", [turn.owner]);
  return { kind: "requested", turn };
}

async function readTurn(
  tx: Queryable,
  condition: string,
  params: readonly string[],
): Promise<TurnRow | undefined> {
  const rows = await tx.query<RawTurn>(selectTurns(condition), params);
  return rows[0] && toTurnRow(rows[0]);
}

async function listCommands(db: Db, owner: string): Promise<TurnCommand[]> {
  const rows = await db.writers.query<{ turn_id: string; model_index: number }>(
    `select c.turn_id, c.model_index from turnwire.turn_commands c join turnwire.turns t on t.turn_id = c.turn_id
     where t.owner = $1 and t.phase = 1 and c.kind = ${STOP} and c.stop_seq is null order by c.create_time`,
    [owner],
  );
  return rows.map((row) => ({
    turnId: row.turn_id,
    kind: "stop",
    modelIndex: row.model_index === WHOLE_TURN ? undefined : row.model_index,
  }));
}

async function answerStop(
  db: Db,
  turnId: string,
  stopSeq: number,
  modelIndex: number | undefined,
): Promise<void> {
  await db.writers.query(
    `with answered as (
       update turnwire.turn_commands set stop_seq = $2
       where turn_id = $1 and kind = ${STOP} and stop_seq is null and ($3::integer is null or model_index = $3) returning 1)
     select pg_notify('turnwire_stopped', $1) where exists (select from answered)`,
    [turnId, stopSeq, modelIndex ?? null],
  );
}

async function waitStopped(
  db: Db,
  listener: Listener,
  turnId: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<number | undefined> {
  const giveUpAt = performance.now() + timeoutMs;
  let wake = new AbortController();
  const unsubscribe = listener.subscribe("turnwire_stopped", (payload) => {
    if (payload === undefined || payload === turnId) wake.abort();
  });
  try {
    for (;;) {
      signal.throwIfAborted();
      wake = new AbortController();
      const stopSeq = await readAnswer(db, turnId);
      if (stopSeq !== undefined) return stopSeq;
      const leftMs = giveUpAt - performance.now();
      if (leftMs <= 0) return undefined;
      const either = AbortSignal.any([wake.signal, signal]);
      await sleep(Math.min(LOOK_EVERY_MS, leftMs), undefined, { signal: either }).catch(() => undefined); // woken
    }
  } finally {
    unsubscribe();
  }
}

/** The answer to all stops of a turn; a turn that ended meanwhile has nothing after its terminal. */
async function readAnswer(db: Db, turnId: string): Promise<number | undefined> {
  const rows = await db.readers.query<{ phase: number; terminal_seq: number; stop_seq: number | null }>(
    `select t.phase, t.terminal_seq, (
       select case when bool_and(c.stop_seq is not null) then max(c.stop_seq) end
       from turnwire.turn_commands c where c.turn_id = t.turn_id and c.kind = ${STOP}) as stop_seq
     from turnwire.turns t where t.turn_id = $1`,
    [turnId],
  );
  const row = rows[0];
  if (!row) return undefined;
  return row.stop_seq ?? (row.phase > 1 ? row.terminal_seq : undefined);
}
