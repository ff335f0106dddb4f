import { toBinary } from "@bufbuild/protobuf";
import { SnapshotPartSchema } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { SnapshotPart } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { TurnStateSchema, type TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { create } from "@bufbuild/protobuf";

/** A part's data is at most this long, bytes (contract.md 2: parts of at most 1 MiB). */
export const SNAPSHOT_PART_BYTES = 1024 * 1024 - 1024;

/** A state's encoding, cut into parts; at least one. */
export function snapshotParts(state: TurnState): SnapshotPart[] {
  const data = toBinary(TurnStateSchema, state);
  const parts: SnapshotPart[] = [];
  for (let start = 0; start === 0 || start < data.length; start += SNAPSHOT_PART_BYTES) {
    const end = Math.min(start + SNAPSHOT_PART_BYTES, data.length);
    parts.push(
      create(SnapshotPartSchema, {
        seq: state.seq,
        data: data.subarray(start, end),
        last: end === data.length,
      }),
    );
  }
  return parts;
}
