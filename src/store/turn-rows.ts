/** How a turn is read: its row, its lanes and how far its archive reaches. */
import { bytes, optionalBytes } from "./db.js";
import type { LaneRow, TurnPhase, TurnRow } from "./store.js";

export interface RawTurn {
  readonly turn_id: string;
  readonly session_id: string;
  readonly tenant_id: string;
  readonly user_id: string;
  readonly request_id: string;
  readonly partition: number;
  readonly log_id: string;
  readonly phase: number;
  readonly epoch: number;
  readonly owner: string;
  readonly user_message_id: string;
  readonly plan: Buffer;
  readonly session_created: boolean;
  readonly start_time: Date;
  readonly end_time: Date | null;
  readonly outcome: number;
  readonly stop_reason: number;
  readonly usage: Buffer | null;
  readonly terminal_seq: number;
  readonly terminal_batch: Buffer | null;
  readonly archived_seq: number;
  readonly lane_indexes: number[] | null;
  readonly lane_models: string[];
  readonly lane_messages: string[];
  readonly lane_outcomes: number[];
  readonly lane_usages: (Buffer | null)[];
}

const PHASES: readonly TurnPhase[] = ["running", "committed", "closed"];

export function phaseNumber(phase: TurnPhase): number {
  return PHASES.indexOf(phase) + 1;
}

/** A select of whole turns. `rest` is what follows `where`; the turn is `t`. */
export function selectTurns(rest: string): string {
  return `
    select t.turn_id, t.session_id, t.tenant_id, t.user_id, t.request_id, t.partition, t.log_id, t.phase, t.epoch, t.owner,
      t.user_message_id, t.plan, t.session_created, t.start_time, t.end_time, t.outcome, t.stop_reason, t.usage,
      t.terminal_seq, t.terminal_batch,
      coalesce((select max(a.last_seq) from turnwire.archive_parts a where a.turn_id = t.turn_id), 0) as archived_seq,
      lane.*
    from turnwire.turns t
    cross join lateral (
      select array_agg(l.model_index order by l.model_index) as lane_indexes,
        array_agg(l.model_id order by l.model_index) as lane_models,
        array_agg(l.message_id order by l.model_index) as lane_messages,
        array_agg(l.outcome::integer order by l.model_index) as lane_outcomes,
        array_agg(l.usage order by l.model_index) as lane_usages
      from turnwire.lanes l where l.turn_id = t.turn_id) lane
    where ${rest}`;
}

export function toTurnRow(raw: RawTurn): TurnRow {
  return {
    turnId: raw.turn_id,
    sessionId: raw.session_id,
    tenantId: raw.tenant_id,
    userId: raw.user_id,
    requestId: raw.request_id,
    partition: raw.partition,
    logId: raw.log_id,
    phase: PHASES[raw.phase - 1]!,
    epoch: raw.epoch,
    owner: raw.owner,
    userMessageId: raw.user_message_id,
    plan: bytes(raw.plan),
    sessionCreated: raw.session_created,
    startTime: raw.start_time,
    endTime: raw.end_time ?? undefined,
    outcome: raw.outcome,
    stopReason: raw.stop_reason,
    usage: optionalBytes(raw.usage),
    terminalSeq: raw.terminal_seq,
    terminalBatch: optionalBytes(raw.terminal_batch),
    archivedSeq: raw.archived_seq,
    lanes: toLaneRows(raw),
  };
}

function toLaneRows(raw: RawTurn): LaneRow[] {
  return (raw.lane_indexes ?? []).map((modelIndex, at) => ({
    modelIndex,
    modelId: raw.lane_models[at]!,
    messageId: raw.lane_messages[at]!,
    outcome: raw.lane_outcomes[at]!,
    usage: optionalBytes(raw.lane_usages[at] ?? null),
  }));
}
