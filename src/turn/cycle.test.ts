import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  ErrorCode,
  FinishReason,
  TurnErrorSchema,
  TurnOutcome,
} from "../../gen/turnwire/packet/v1/common_pb.js";
import { ToolChoiceKind } from "../../gen/turnwire/packet/v1/control_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import type { CycleOptions, LaneAction, LaneCycleState } from "./cycle.js";
import { nextAction, recordStep, recordToolResults, refuseCalls, startCycles } from "./cycle.js";
import { finishStep, nextDelta, startStep } from "./decode.js";
import type { StepOutcome } from "./step.js";
import { brief, call, content, decodeStep, finish, stepOptions } from "./test-support.js";

const answered = decodeStep([content("A"), finish(FinishReason.STOP)]).outcome;
const wantsTools = decodeStep([
  call(0, { name: "search", argumentsFragment: "{}" }),
  finish(FinishReason.TOOL_CALLS),
]).outcome;
const narratesAndWants = decodeStep([content("N"), call(0, { name: "search" })]).outcome;
const stopped = endOf({ kind: "stopped" });
const failed = endOf({ kind: "failed", error: create(TurnErrorSchema, { code: ErrorCode.RATE_LIMIT }) });

function endOf(end: Parameters<typeof finishStep>[1]): StepOutcome {
  const state = startStep(stepOptions());
  nextDelta(state, content("part"));
  return finishStep(state, end).outcome;
}

/** A lane's actions while it is given these step outcomes and runs every tool well. */
function actions(options: CycleOptions, steps: readonly StepOutcome[], stopsTurn = false): LaneAction[] {
  let state: LaneCycleState = startCycles(options);
  const seen: LaneAction[] = [];
  const queue = [...steps];
  for (;;) {
    const action = nextAction(state);
    seen.push(action);
    if (action.kind === "finish") return seen;
    if (action.kind === "call_model") {
      const step = queue.shift();
      if (!step) return seen;
      state = recordStep(state, step);
    } else {
      state = recordToolResults(
        state,
        action.calls.map(({ callId }) => ({ callId, status: ToolCallStatus.OK, stopsTurn })),
      );
    }
  }
}

describe("nextAction", () => {
  test("an answer ends the lane", () => {
    expect(actions({ maxCycles: 6 }, [answered])).toEqual([
      { kind: "call_model", cycle: 1, tools: { kind: "all" }, toolChoice: ToolChoiceKind.AUTO },
      {
        kind: "finish",
        outcome: { outcome: TurnOutcome.COMPLETED, finishReason: FinishReason.STOP },
        refusedCalls: [],
      },
    ]);
  });

  test("calls are run and the model is called again", () => {
    const seen = actions({ maxCycles: 6 }, [wantsTools, answered]);
    expect(seen.map((action) => action.kind)).toEqual(["call_model", "run_tools", "call_model", "finish"]);
    expect(seen[1]).toMatchObject({ cycle: 1, calls: [{ toolName: "search" }] });
    expect(seen[2]).toMatchObject({ cycle: 2 });
  });

  test("the last cycle offers no tools; what it calls all the same is refused", () => {
    const none = { kind: "call_model", cycle: 2, tools: { kind: "none" }, toolChoice: ToolChoiceKind.NONE };
    const seen = actions({ maxCycles: 2 }, [wantsTools, wantsTools]);
    expect(seen[2]).toEqual(none);
    expect(seen[3]).toMatchObject({
      kind: "finish",
      outcome: { outcome: TurnOutcome.ERROR, error: { code: ErrorCode.CYCLE_LIMIT } },
      refusedCalls: [{ toolName: "search" }],
    });
    const withText = actions({ maxCycles: 2 }, [wantsTools, narratesAndWants]);
    expect(withText[3]).toMatchObject({ outcome: { outcome: TurnOutcome.COMPLETED }, refusedCalls: [{}] });
    expect(actions({ maxCycles: 1 }, [])[0]).toMatchObject({ tools: { kind: "none" } });
  });

  test("a forced tool is forced in the first cycle only, and not in the last", () => {
    const seen = actions({ maxCycles: 3, forcedToolId: "t" }, [wantsTools, answered]);
    expect(seen[0]).toMatchObject({ tools: { kind: "one", toolId: "t" }, toolChoice: ToolChoiceKind.ONE });
    expect(seen[2]).toMatchObject({ tools: { kind: "all" } });
    expect(actions({ maxCycles: 1, forcedToolId: "t" }, [])[0]).toMatchObject({ tools: { kind: "none" } });
    expect(actions({ maxCycles: 3, forcedToolId: "t", completedCycles: 1 }, [])[0]).toMatchObject({
      cycle: 2,
      tools: { kind: "all" },
    });
  });

  test("a tool that ends the turn leaves one cycle without tools", () => {
    const seen = actions({ maxCycles: 6 }, [wantsTools, wantsTools], true);
    expect(seen[2]).toMatchObject({ cycle: 2, tools: { kind: "none" } });
    expect(seen[3]).toMatchObject({ kind: "finish", outcome: { outcome: TurnOutcome.ERROR } });
  });

  test("stopped and failed steps end the lane", () => {
    expect(actions({ maxCycles: 6 }, [stopped])[1]).toMatchObject({
      outcome: { outcome: TurnOutcome.STOPPED, finishReason: FinishReason.CANCELLED },
    });
    expect(actions({ maxCycles: 6 }, [failed])[1]).toMatchObject({
      outcome: { outcome: TurnOutcome.ERROR, error: { code: ErrorCode.RATE_LIMIT } },
    });
  });

  test("asking twice gives the same answer, and states are not changed", () => {
    const start = Object.freeze(startCycles({ maxCycles: 3 }));
    const later = Object.freeze(recordStep(start, wantsTools));
    expect(nextAction(start)).toEqual(nextAction(start));
    expect(nextAction(later)).toEqual(nextAction(later));
    expect(nextAction(start)).toMatchObject({ kind: "call_model" });
  });
});

test("refused calls get a result and an end", () => {
  expect(refuseCalls(wantsTools.calls).map(brief)).toEqual(["0.0 toolCallResult ERROR", "0.0 sectionEnd"]);
});
