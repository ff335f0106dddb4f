import { expect, test } from "vitest";
import { ToolOutcome, type ToolResult } from "../../../gen/turnwire/tool/v1/tool_service_pb.js";
import { systemClock } from "../../lib/clock.js";
import { silentLogger } from "../../lib/log.js";
import { createToolRegistry } from "../registry.js";
import type { ToolInput, ToolPayload } from "../tool.js";
import { createClockTool } from "./clock.js";

const AT = "2026-11-30T23:30:05Z";

async function run(
  args: Record<string, unknown>,
  at = AT,
): Promise<{ packets: ToolPayload[]; result: ToolResult }> {
  const tool = createClockTool({ clock: { ...systemClock, now: () => new Date(at) } });
  const checked = createToolRegistry([tool]).get("clock")!.checkArguments(JSON.stringify(args));
  if (checked.kind === "invalid") throw new Error(checked.text);
  const input = { args: checked.args } as unknown as ToolInput;
  const packets: ToolPayload[] = [];
  const steps = tool.run(input, { signal: new AbortController().signal, logger: silentLogger });
  for (;;) {
    const step = await steps.next();
    if (step.done) return { packets, result: step.value };
    packets.push(step.value);
  }
}

test.each([
  [{}, "Monday, 2026-11-30 23:30:05 in UTC (UTC+00:00)"],
  [{ timezone: "Europe/Berlin" }, "Tuesday, 2026-12-01 00:30:05 in Europe/Berlin (UTC+01:00)"],
  [{ timezone: "America/Los_Angeles", format: "iso" }, "2026-11-30T15:30:05-08:00"],
  [{ timezone: "Asia/Kathmandu", format: "time" }, "05:15:05"],
  [{ timezone: "Pacific/Kiritimati", format: "date" }, "2026-12-01"],
  [{ timezone: "asia/tokyo", format: "iso" }, "2026-12-01T08:30:05+09:00"],
  [{ format: "unix" }, "1796081405"],
])("clock - %j", async (args, text) => {
  const { result } = await run(args);
  expect(result).toMatchObject({ outcome: ToolOutcome.OK, modelText: text });
});

test("clock - the hour that daylight saving skips and the one it repeats", async () => {
  const at = async (time: string) =>
    (await run({ timezone: "Europe/Berlin", format: "iso" }, time)).result.modelText;
  expect(await at("2026-03-29T00:59:59Z")).toBe("2026-03-29T01:59:59+01:00");
  expect(await at("2026-03-29T01:00:00Z")).toBe("2026-03-29T03:00:00+02:00");
  expect(await at("2026-10-25T00:30:00Z")).toBe("2026-10-25T02:30:00+02:00");
  expect(await at("2026-10-25T01:30:00Z")).toBe("2026-10-25T02:30:00+01:00");
});

test("clock - packets: start, then the reading as JSON", async () => {
  const { packets, result } = await run({ timezone: "UTC" });
  expect(packets.map((packet) => packet.case)).toEqual(["customToolStart", "customToolDelta"]);
  const delta = packets[1]!;
  if (delta.case !== "customToolDelta") throw new Error("not a delta");
  expect(JSON.parse(delta.value.data!)).toMatchObject({
    iso: "2026-11-30T23:30:05+00:00",
    weekday: "Monday",
  });
  expect(delta.value.data).toBe(result.resultJson);
});

test.each([
  ["Berlin", "Did you mean Europe/Berlin?"],
  ["new york", "America/New_York"],
  ["Mars/Olympus", "Use an IANA name"],
])("clock - %s is not a zone: %s", async (timezone, hint) => {
  const { packets, result } = await run({ timezone });
  expect(result.outcome).toBe(ToolOutcome.ERROR);
  expect(result.modelText).toContain(hint);
  expect(packets.at(-1)).toMatchObject({
    case: "customToolDelta",
    value: { error: { message: result.modelText } },
  });
});
