import type { LaneState } from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import { storedLaneView } from "../view/lane-view.js";
import type { TurnView } from "../view/view-types.js";

/** The view of a turn of which only the answers are known: what its messages store. */
export function viewOfLanes(turnId: string, answers: readonly LaneState[]): TurnView {
  const lanes = answers.map((answer) => storedLaneView(answer));
  return {
    turnId,
    seq: 0,
    progress: lanes.some(({ progress }) => progress === "completed") ? "completed" : lanes[0]!.progress,
    lanes,
    notices: [],
    clientCalls: [],
    end: undefined,
    title: "",
    followUps: [],
    incomplete: false,
  };
}
