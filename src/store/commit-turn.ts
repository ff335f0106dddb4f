/**
 * The commit: the final rows of a turn, its last archive part and its terminal's exact bytes, in one transaction whose
 * first statement takes the turn's row exclusively if the epoch is still the writer's (I5). Done twice it changes nothing:
 * a commit of the same epoch with the same terminal bytes has been made.
 */
import { TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { Undo, type Db, type Param, type Queryable } from "./db.js";
import { searchParams } from "./search-words.js";
import { EVENT, type EventWakes } from "./session-events.js";
import type { CommitInput } from "./store.js";
import { partNotDense } from "./writer-rows.js";

type Lane = CommitInput["lanes"][number];

/** Rows per insert: keeps statements far below the protocol's 65,535 parameters. */
const ROWS_PER_INSERT = 500;

export async function commitTurn(
  db: Db,
  wakes: EventWakes,
  input: CommitInput,
): Promise<"committed" | "fenced"> {
  const owner = await db.writers.transaction((tx) => commit(tx, input));
  if (owner === "fenced") return "fenced";
  if (owner !== "committed before") wakes.wake({ tenantId: owner.tenant_id, userId: owner.user_id });
  return "committed";
}

interface Owned {
  readonly tenant_id: string;
  readonly user_id: string;
}

async function commit(tx: Queryable, input: CommitInput): Promise<Owned | "committed before" | "fenced"> {
  const owned = (await tx.query<Owned>(END_TURN, endTurnParams(input)))[0];
  if (!owned) throw new Undo((await isCommitted(tx, input)) ? "committed before" : "fenced");
  const owner = [owned.tenant_id, owned.user_id] as const;
  for (const lane of input.lanes) {
    await tx.query(END_LANE, endLaneParams(input, lane, owned));
    await insertRows(
      tx,
      "tool_calls (turn_id, tenant_id, user_id, model_index, ordinal, call_id, cycle, tool_id, arguments_json, status, model_text)",
      toolCallRows(input.turnId, owner, lane),
    );
    await insertRows(
      tx,
      "documents (turn_id, tenant_id, user_id, document_id, document)",
      documentRows(input.turnId, owner, lane),
    );
    await insertRows(
      tx,
      "citations (turn_id, tenant_id, user_id, model_index, number, document_id)",
      citationRows(input.turnId, owner, lane),
    );
  }
  if (input.lanes.length > 1) await tx.query(GO_ON_FROM_AN_ANSWER, [input.turnId, TurnOutcome.COMPLETED]);
  if (input.archive) await insertLastPart(tx, input, owner);
  return owned;
}

const END_TURN = {
  name: "end_turn",
  text: `
    with guard as materialized (select turn_id from turnwire.turns where turn_id = $1 and epoch = $2 and phase = 1 for update),
    turn as (
      update turnwire.turns t set phase = 2, outcome = $3, stop_reason = $4, usage = $5, terminal_seq = $6, terminal_batch = $7, end_time = $8
      from guard where t.turn_id = guard.turn_id and t.epoch = $2 and t.phase = 1
      returning t.session_id, t.tenant_id, t.user_id),
    session as (
      update turnwire.sessions s set update_time = clock_timestamp(), revision = revision + 1 from turn where s.session_id = turn.session_id
      returning s.session_id),
    event as (
      insert into turnwire.session_events (tenant_id, user_id, kind, session_id, turn_id)
      select turn.tenant_id, turn.user_id, e.kind, turn.session_id, e.turn_id
      from turn join session using (session_id),
        (values (1, ${EVENT.updated}, ''), (2, ${EVENT.turnEnded}, $1)) as e (at, kind, turn_id)
      order by e.at)
    select tenant_id, user_id from turn`,
};

function endTurnParams(input: CommitInput): Param[] {
  return [
    input.turnId,
    input.epoch,
    input.outcome,
    input.stopReason,
    input.usage,
    input.terminalSeq,
    input.terminalBatch,
    input.endTime,
  ];
}

async function isCommitted(tx: Queryable, input: CommitInput): Promise<boolean> {
  const rows = await tx.query(
    "select 1 from turnwire.turns where turn_id = $1 and epoch = $2 and phase > 1 and terminal_seq = $3 and terminal_batch = $4",
    [input.turnId, input.epoch, input.terminalSeq, input.terminalBatch],
  );
  return rows.length > 0;
}

const END_LANE = {
  name: "end_lane",
  text: `
    with lane as (
      update turnwire.lanes set outcome = $3, usage = $4, model_id = $5 where turn_id = $1 and model_index = $2 returning tenant_id, user_id),
    message as (
      update turnwire.messages set answer = $7, search_text = $9, search = $10::tsvector
      where message_id = $6 and turn_id = $1)
    insert into turnwire.usage (turn_id, model_index, tenant_id, user_id, model_id, usage, end_time)
    select $1, $2, tenant_id, user_id, $5, $4, $8 from lane`,
};

/** A conversation does not go on from the lane that failed while another one has answered. */
const GO_ON_FROM_AN_ANSWER = {
  name: "go_on_from_an_answer",
  text: `
    update turnwire.sessions s set current_message_id = (
      select message_id from turnwire.lanes where turn_id = $1 and outcome = $2 order by model_index limit 1)
    from turnwire.turns t join turnwire.lanes failed on failed.turn_id = t.turn_id and failed.outcome <> $2
    where t.turn_id = $1 and s.session_id = t.session_id and s.current_message_id = failed.message_id
      and exists (select from turnwire.lanes where turn_id = $1 and outcome = $2)`,
};

function endLaneParams(input: CommitInput, lane: Lane, owned: Owned): Param[] {
  const { modelIndex, outcome, usage, modelId, messageId, answer, text } = lane;
  const owner = { tenantId: owned.tenant_id, userId: owned.user_id };
  return [
    input.turnId,
    modelIndex,
    outcome,
    usage,
    withoutNul(modelId),
    messageId,
    answer,
    input.endTime,
    ...searchParams(owner, text),
  ];
}

function toolCallRows(turnId: string, owner: readonly string[], lane: Lane): Param[][] {
  return lane.toolCalls.map((call, ordinal) => [
    turnId,
    ...owner,
    lane.modelIndex,
    ordinal,
    withoutNul(call.callId),
    call.cycle,
    withoutNul(call.toolId),
    Buffer.from(call.argumentsJson, "utf8"),
    call.status,
    Buffer.from(call.modelText, "utf8"),
  ]);
}

function documentRows(turnId: string, owner: readonly string[], lane: Lane): Param[][] {
  return lane.citations.map((citation) => [
    turnId,
    ...owner,
    withoutNul(citation.documentId),
    citation.document,
  ]);
}

function citationRows(turnId: string, owner: readonly string[], lane: Lane): Param[][] {
  return lane.citations.map((citation) => [
    turnId,
    ...owner,
    lane.modelIndex,
    citation.number,
    withoutNul(citation.documentId),
  ]);
}

/** Lanes cite the same documents: what is there stays. */
async function insertRows(tx: Queryable, into: string, rows: readonly (readonly Param[])[]): Promise<void> {
  for (let at = 0; at < rows.length; at += ROWS_PER_INSERT) {
    const chunk = rows.slice(at, at + ROWS_PER_INSERT);
    const width = chunk[0]!.length;
    const values = chunk.map(
      (_, row) =>
        `(${Array.from({ length: width }, (__, column) => `$${row * width + column + 1}`).join(", ")})`,
    );
    await tx.query(
      `insert into turnwire.${into} values ${values.join(", ")} on conflict do nothing`,
      chunk.flat(),
    );
  }
}

async function insertLastPart(tx: Queryable, input: CommitInput, owner: readonly string[]): Promise<void> {
  const part = input.archive!;
  const saved = await tx.query(
    {
      name: "save_last_part",
      text: `insert into turnwire.archive_parts (turn_id, first_seq, last_seq, tenant_id, user_id, batch)
        select $1, $2, $3, $4, $5, $6
        where $2 = coalesce((select max(last_seq) from turnwire.archive_parts where turn_id = $1), 0) + 1 returning 1`,
    },
    [input.turnId, part.firstSeq, part.lastSeq, ...owner, part.batch],
  );
  if (saved.length === 0) throw partNotDense(input.turnId, part);
}

/** What models and tools say must never keep a turn from ending: Postgres's text cannot hold U+0000. */
function withoutNul(text: string): string {
  return text.includes("\0") ? text.replaceAll("\0", "\uFFFD") : text;
}
