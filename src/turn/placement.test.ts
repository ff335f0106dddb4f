import { describe, expect, test } from "vitest";
import { packet } from "./packets.js";
import {
  agentPlacement,
  groupPlacement,
  isToolPayload,
  lanePlacement,
  lanePlacementOf,
  nextBlock,
  nextCall,
  nextCallGroup,
  placementOf,
  placeToolPacket,
  resumeLanePlacement,
  samePlacement,
  turnPlacement,
} from "./placement.js";
import { fold } from "./fold.js";
import { numbered } from "./test-support.js";

describe("lane placement", () => {
  test("blocks take the next index, calls of a step share one", () => {
    const lane = lanePlacement(2);
    expect(nextBlock(lane)).toMatchObject({
      turnIndex: 0,
      tabIndex: 0,
      modelIndex: 2,
      subTurnIndex: undefined,
    });
    const group = nextCallGroup(lane);
    expect([nextCall(lane, group), nextCall(lane, group)]).toMatchObject([
      { turnIndex: 1, tabIndex: 0 },
      { turnIndex: 1, tabIndex: 1 },
    ]);
    expect(groupPlacement(lane, group)).toMatchObject({ turnIndex: 1, tabIndex: 0 });
    expect(nextBlock(lane)).toMatchObject({ turnIndex: 2, tabIndex: 0 });
  });

  test("an agent counts inside its call", () => {
    const lane = agentPlacement(placementOf(4, 1, undefined, 0, undefined));
    expect(nextBlock(lane)).toMatchObject({
      turnIndex: 4,
      tabIndex: 1,
      subTurnIndex: 0,
      subTabIndex: undefined,
      modelIndex: 0,
    });
    const group = nextCallGroup(lane);
    expect([nextCall(lane, group), nextCall(lane, group)]).toMatchObject([
      { turnIndex: 4, tabIndex: 1, subTurnIndex: 1, subTabIndex: undefined },
      { turnIndex: 4, tabIndex: 1, subTurnIndex: 1, subTabIndex: 1 },
    ]);
  });

  test("a lane goes on after the highest index its log holds, discarded or not", () => {
    const at = (turn: number, model: number) => placementOf(turn, 0, undefined, model, undefined);
    const state = fold(
      numbered([
        packet("reasoningStart", {}, at(0, 0)),
        packet("agentResponseStart", {}, at(5, 0)),
        packet("cycleReset", { cycle: 0 }, lanePlacementOf(0), true),
        packet("agentResponseStart", {}, at(9, 1)),
      ]),
    );
    expect(nextBlock(resumeLanePlacement(state, 0)).turnIndex).toBe(6);
    expect(nextBlock(resumeLanePlacement(state, 7)).turnIndex).toBe(0);
  });
});

describe("placeToolPacket", () => {
  const call = placementOf(3, 1, undefined, 0, undefined);
  const inner = (sub?: number, subTab?: number) => ({
    ...packet("bashToolStart", { cmd: "ls" }, placementOf(99, 98, sub, 97, subTab)),
    seq: 12,
    tMs: 13,
  });

  test.each([
    ["no placement", packet("bashToolStart", { cmd: "ls" }, undefined), call],
    ["no sub indices", inner(), call],
    ["sub indices", inner(2, 1), placementOf(3, 1, 2, 0, 1)],
  ])("%s", (_, given, expected) => {
    expect(placeToolPacket(given, call)).toMatchObject({
      seq: 0,
      tMs: 0,
      placement: expected,
      payload: given.payload,
    });
  });

  test("a nested call keeps its own place, and the tool's packet is not changed", () => {
    const nested = placementOf(3, 1, 5, 0, undefined);
    const given = inner(2);
    expect(placeToolPacket(given, nested).placement).toEqual(nested);
    expect(given).toMatchObject({ seq: 12, tMs: 13, placement: { turnIndex: 99 } });
  });
});

test("tools show what is theirs and end nothing but themselves", () => {
  expect(isToolPayload(packet("bashToolDelta", { stdout: "a" }, undefined))).toBe(true);
  for (const forbidden of [
    packet("overallStop", {}, undefined),
    packet("toolCallResult", {}, undefined),
    packet("sectionEnd", {}, undefined),
    packet("agentResponseDelta", { content: "x" }, undefined),
    packet("turnStarted", {}, undefined),
    packet("sessionTitle", {}, undefined),
  ]) {
    expect(isToolPayload(forbidden)).toBe(false);
  }
  expect(isToolPayload({ ...packet("overallStop", {}, undefined), payload: { case: undefined } })).toBe(
    false,
  );
});

test("samePlacement tells absent from zero", () => {
  expect(samePlacement(lanePlacementOf(0), turnPlacement())).toBe(false);
  expect(samePlacement(lanePlacementOf(0), lanePlacementOf(0))).toBe(true);
  expect(samePlacement(undefined, lanePlacementOf(0))).toBe(false);
});
