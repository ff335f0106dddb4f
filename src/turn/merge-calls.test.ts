import { readFileSync } from "node:fs";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { PlacementSchema } from "../../gen/turnwire/packet/v1/packet_pb.js";
import { testDataDir } from "../../test/support/test-data.js";
import { mergeCalls } from "./merge-calls.js";
import type { DecodedCall, StepTool } from "./step.js";

const MERGEABLE: Readonly<Record<string, string>> = { search: "queries", open_url: "urls" };

const toolFor =
  (mergeable: Readonly<Record<string, string>>) =>
  (name: string): StepTool => ({
    ...{ toolId: name, displayName: name, streamsArguments: false, clientSide: false },
    mergeArgument: mergeable[name] ?? "",
  });

function call(callId: string, toolName: string, args: unknown, argumentsValid = true): DecodedCall {
  const argumentsJson = typeof args === "string" ? args : JSON.stringify(args);
  return {
    ...{ callId, providerCallId: callId, modelCallId: callId, toolId: toolName, toolName, clientSide: false },
    ...{ placement: create(PlacementSchema), argumentsJson, argumentsValid },
  };
}

/** Per call what it runs with, or the call that runs for it. */
const outcome = (calls: readonly DecodedCall[], mergeable = MERGEABLE) =>
  mergeCalls(calls, toolFor(mergeable)).map(
    ({ argumentsJson, mergedIntoCallId, mergedArgumentsJson }) =>
      mergedIntoCallId ?? (JSON.parse(mergedArgumentsJson ?? argumentsJson) as unknown),
  );

describe("merging calls", () => {
  test("searches become one with all queries, each once; what others call stays", () => {
    const calls = [
      call("a", "search", { queries: ["x", "y"], tags: ["t"] }),
      call("b", "clock", { queries: ["x"] }),
      call("c", "search", { tags: ["t"], queries: "z" }),
      call("d", "search", { queries: ["y", "w"], tags: ["t"] }),
    ];
    const all = { queries: ["x", "y", "z", "w"], tags: ["t"] };
    expect(outcome(calls)).toEqual([all, { queries: ["x"] }, "a", "a"]);
    expect(calls.map(({ argumentsJson }) => argumentsJson)[0]).toContain(`["x","y"]`);
  });

  test("other arguments that differ - two searches", () => {
    const [one, two] = [{ queries: ["x"] }, { queries: ["y"], tags: ["t"] }];
    expect(outcome([call("a", "search", one), call("b", "search", two)])).toEqual([one, two]);
  });

  test("arguments that do not fit stay as they are", () => {
    const odd = [{ queries: 7 }, {}, { queries: { length: 2 } }];
    const calls = odd.map((args, index) => call(`c${index}`, "search", args));
    expect(outcome([...calls, call("last", "search", { queries: ["x"] })])).toEqual([
      ...odd,
      { queries: ["x"] },
    ]);
    const broken = [call("a", "search", `{"queries":["x"]`, false), call("b", "search", { queries: ["y"] })];
    expect(mergeCalls(broken, toolFor(MERGEABLE))).toEqual(broken);
  });

  test("names that objects are born with are no arguments", () => {
    const calls = [call("a", "search", "{}"), call("b", "search", `{"__proto__":["x"]}`)];
    expect(mergeCalls(calls, toolFor({ search: "__proto__" }))[0]!.mergedArgumentsJson).toBeUndefined();
  });
});

interface Case {
  readonly kind: string;
  readonly id: string;
  readonly quirk: boolean;
  readonly mergeable: Readonly<Record<string, string>>;
  readonly calls: readonly { readonly id: string; readonly name: string; readonly args: object }[];
  readonly expected: readonly { readonly id: string; readonly args: object }[];
}

const dir = testDataDir();

describe.skipIf(!dir)("merging calls of the test data folder", () => {
  const file = dir && join(dir, "cases", "step_decoder.json");
  const all = file ? (JSON.parse(readFileSync(file, "utf8")) as { cases: readonly Case[] }).cases : [];
  const demanded = all.filter(({ kind, quirk }) => kind === "merge" && !quirk);

  test("there are some", () => expect(demanded.length).toBeGreaterThan(3));

  test.each(demanded)("$id", ({ mergeable, calls, expected }) => {
    const merged = mergeCalls(
      calls.map(({ id, name, args }) => call(id, name, args)),
      toolFor(mergeable),
    );
    const running = merged.filter(({ mergedIntoCallId }) => mergedIntoCallId === undefined);
    expect(
      running.map(({ callId, argumentsJson, mergedArgumentsJson }) => ({
        id: callId,
        args: JSON.parse(mergedArgumentsJson ?? argumentsJson) as object,
      })),
    ).toEqual(expected.map(({ id, args }) => ({ id, args })));
  });
});
