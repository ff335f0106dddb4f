/** The one line that says what a running lane does right now. Pure. */
import type { LaneState } from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { StatusUpdate } from "../../../gen/turnwire/packet/v1/side_pb.js";
import { callTitle } from "./call-view.js";
import type { GroupView, StatusView } from "./view-types.js";

/** The status of a lane that has not ended; `last` is the newest group that it shows. */
export function laneStatus(lane: LaneState, last: GroupView | undefined, waitText: string): StatusView {
  if (waitText) return { kind: "waiting", text: waitText };
  const note = newestNote(lane.statuses);
  if (note) return { kind: "note", text: note };
  if (last?.kind === "tools" && last.open) {
    const running = last.calls.filter(({ status }) => status === "running" || status === "preparing");
    const first = running[0];
    const more = running.length > 1 ? `, and ${running.length - 1} more` : "";
    if (first) return { kind: "tool", text: `${callTitle(first)}${more}` };
  }
  if (last && last.kind !== "tools" && last.kind !== "notice" && last.open)
    return last.kind === "reasoning"
      ? { kind: "reasoning", text: "Thinking" }
      : { kind: "writing", text: "Writing" };
  return lane.started
    ? { kind: "starting", text: "Waiting for the model" }
    : { kind: "starting", text: "Starting" };
}

/** The newest line that people should see and that is not over; empty = none. */
export function newestNote(statuses: readonly StatusUpdate[]): string {
  const newest = statuses.findLast(({ hidden }) => !hidden);
  return newest && !newest.done ? newest.description : "";
}
