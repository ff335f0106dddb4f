/**
 * The rows that the writer of a turn stores while it runs. I5: each is guarded, in the statement that writes it, by a share
 * lock on the turn's row with the writer's epoch in it; a takeover or a commit waits for the statement, or the statement
 * finds the epoch gone and writes nothing.
 */
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { assertNever } from "../lib/assert-never.js";
import { bytes, type Db } from "./db.js";
import type { ArchivePart, Checkpoint, Store } from "./store.js";

export type WriterRowMethods = Pick<
  Store,
  "takeTurn" | "saveCheckpoint" | "listCheckpoints" | "saveArchivePart" | "readArchive" | "markClosed"
>;

/** The writer's turn, locked: $1 the turn, $2 the epoch. */
export const GUARD =
  "guard as materialized (select turn_id, tenant_id, user_id from turnwire.turns where turn_id = $1 and epoch = $2 and phase = 1 for share)";

export function writerRowMethods(db: Db): WriterRowMethods {
  return {
    takeTurn: (turnId, fromEpoch, toEpoch, owner, logId) =>
      takeTurn(db, turnId, fromEpoch, toEpoch, owner, logId),
    saveCheckpoint: (turnId, epoch, checkpoint) => saveCheckpoint(db, turnId, epoch, checkpoint),
    listCheckpoints: (turnId) => listCheckpoints(db, turnId),
    saveArchivePart: (turnId, epoch, part) => saveArchivePart(db, turnId, epoch, part),
    readArchive: (turnId, afterSeq) => readArchive(db, turnId, afterSeq),
    markClosed: async (turnId) => {
      await db.writers.query(
        {
          name: "mark_closed",
          text: "update turnwire.turns set phase = 3, close_time = clock_timestamp() where turn_id = $1 and phase = 2",
        },
        [turnId],
      );
    },
  };
}

async function takeTurn(
  db: Db,
  turnId: string,
  fromEpoch: number,
  toEpoch: number,
  owner: string,
  logId = "",
): Promise<boolean> {
  if (toEpoch <= fromEpoch) throw new Error(`epochs never go back: ${fromEpoch} to ${toEpoch}`);
  const params = [turnId, fromEpoch, toEpoch, owner, logId];
  const taken = await db.writers.query(
    {
      name: "take_turn",
      text: "update turnwire.turns set epoch = $3, owner = $4, log_id = coalesce(nullif($5, ''), log_id) where turn_id = $1 and epoch = $2 and phase < 3 returning 1",
    },
    params,
  );
  if (taken.length > 0) return true;
  // Ours already, if the connection broke between this and its answer.
  const mine = await db.writers.query(
    "select 1 from turnwire.turns where turn_id = $1 and epoch = $2 and owner = $3 and phase < 3",
    [turnId, toEpoch, owner],
  );
  return mine.length > 0;
}

interface CheckpointKey {
  readonly kind: number;
  readonly cycle: number;
  readonly callId: string;
}

function checkpointKey(checkpoint: Checkpoint): CheckpointKey {
  switch (checkpoint.kind) {
    case "input":
      return { kind: 1, cycle: -1, callId: "" };
    case "cycle":
      return { kind: 2, cycle: checkpoint.cycle, callId: "" };
    case "dispatching":
      return { kind: 3, cycle: checkpoint.cycle, callId: checkpoint.callId };
    case "result":
      return { kind: 4, cycle: checkpoint.cycle, callId: checkpoint.callId };
    default:
      return assertNever(checkpoint);
  }
}

async function saveCheckpoint(
  db: Db,
  turnId: string,
  epoch: number,
  checkpoint: Checkpoint,
): Promise<boolean> {
  const { kind, cycle, callId } = checkpointKey(checkpoint);
  const rows = await db.writers.query<{ guarded: boolean }>(
    {
      name: "save_checkpoint",
      text: `with ${GUARD}, saved as (
          insert into turnwire.checkpoints (turn_id, kind, model_index, cycle, call_id, tenant_id, user_id, epoch, data)
          select turn_id, $3, $4, $5, $6, tenant_id, user_id, $2, $7 from guard on conflict do nothing)
        select exists (select from guard) as guarded`,
    },
    [turnId, epoch, kind, checkpoint.modelIndex, cycle, callId, checkpoint.data],
  );
  return rows[0]!.guarded;
}

interface RawCheckpoint {
  readonly kind: number;
  readonly model_index: number;
  readonly cycle: number;
  readonly call_id: string;
  readonly data: Buffer;
}

async function listCheckpoints(db: Db, turnId: string): Promise<Checkpoint[]> {
  const rows = await db.writers.query<RawCheckpoint>(
    "select kind, model_index, cycle, call_id, data from turnwire.checkpoints where turn_id = $1 order by ordinal",
    [turnId],
  );
  return rows.map(toCheckpoint);
}

function toCheckpoint(raw: RawCheckpoint): Checkpoint {
  const common = { modelIndex: raw.model_index, data: bytes(raw.data) };
  switch (raw.kind) {
    case 1:
      return { kind: "input", ...common };
    case 2:
      return { kind: "cycle", cycle: raw.cycle, ...common };
    default:
      return {
        kind: raw.kind === 3 ? "dispatching" : "result",
        cycle: raw.cycle,
        callId: raw.call_id,
        ...common,
      };
  }
}

async function saveArchivePart(db: Db, turnId: string, epoch: number, part: ArchivePart): Promise<boolean> {
  const rows = await db.writers.query<{ guarded: boolean; saved: boolean }>(
    {
      name: "save_archive_part",
      text: `with ${GUARD}, saved as (
          insert into turnwire.archive_parts (turn_id, first_seq, last_seq, tenant_id, user_id, batch)
          select turn_id, $3, $4, tenant_id, user_id, $5 from guard
          where $3 = coalesce((select max(last_seq) from turnwire.archive_parts where turn_id = $1), 0) + 1
          on conflict do nothing returning 1)
        select exists (select from guard) as guarded, exists (select from saved) as saved`,
    },
    [turnId, epoch, part.firstSeq, part.lastSeq, part.batch],
  );
  const { guarded, saved } = rows[0]!;
  if (guarded && !saved && !(await hasPart(db, turnId, part))) throw partNotDense(turnId, part);
  return guarded;
}

async function hasPart(db: Db, turnId: string, part: ArchivePart): Promise<boolean> {
  const rows = await db.writers.query(
    "select 1 from turnwire.archive_parts where turn_id = $1 and first_seq = $2 and last_seq = $3 and batch = $4",
    [turnId, part.firstSeq, part.lastSeq, part.batch],
  );
  return rows.length > 0;
}

/** The archive has no gap and no overlap: a part that would make one is a fault of the writer. */
export function partNotDense(turnId: string, part: ArchivePart): TurnError {
  return new TurnError(ErrorCode.INTERNAL, {
    cause: new Error(
      `archive part ${part.firstSeq}..${part.lastSeq} of turn ${turnId} does not follow the one before`,
    ),
  });
}

async function* readArchive(db: Db, turnId: string, afterSeq: number): AsyncGenerator<ArchivePart> {
  for (let after = afterSeq; ;) {
    const rows = await db.readers.query<{ first_seq: number; last_seq: number; batch: Buffer }>(
      {
        name: "read_archive",
        text: "select first_seq, last_seq, batch from turnwire.archive_parts where turn_id = $1 and last_seq > $2 order by last_seq limit 1",
      },
      [turnId, after],
    );
    const row = rows[0];
    if (!row) return;
    yield { firstSeq: row.first_seq, lastSeq: row.last_seq, batch: bytes(row.batch) };
    after = row.last_seq;
  }
}
