/** The `clock` tool: date and time in a time zone. */
import { create, fromJson } from "@bufbuild/protobuf";
import { DurationSchema } from "@bufbuild/protobuf/wkt";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { CustomToolResponseType } from "../../../gen/turnwire/packet/v1/tools_pb.js";
import {
  ToolFamily,
  ToolOutcome,
  type ToolResult,
  ToolResultSchema,
  ToolSchema,
} from "../../../gen/turnwire/tool/v1/tool_service_pb.js";
import type { Clock } from "../../lib/clock.js";
import { cutChars } from "../../lib/text.js";
import { errorResult, type ToolDefinition, type ToolPayload } from "../tool.js";

const TOOL_ID = "clock";
const FORMATS = ["full", "iso", "date", "time", "unix"] as const;
type Format = (typeof FORMATS)[number];

const PARAMETERS = {
  type: "object",
  properties: {
    timezone: {
      type: "string",
      maxLength: 100,
      description: "IANA time zone, for example Europe/Berlin. Default: UTC.",
    },
    format: { enum: FORMATS, description: "What to give: full (default), iso, date, time, or unix seconds." },
  },
  additionalProperties: false,
};

/** Makes the tool. It tells the wall-clock time of `clock`. */
export function createClockTool({ clock }: { readonly clock: Clock }): ToolDefinition {
  const tool = create(ToolSchema, {
    toolId: TOOL_ID,
    name: TOOL_ID,
    displayName: "Clock",
    description: "Tells the current date and time, in UTC or in a given time zone.",
    parametersJsonSchema: JSON.stringify(PARAMETERS),
    idempotent: true,
    timeout: fromJson(DurationSchema, "5s"),
    source: "builtin",
    family: ToolFamily.CUSTOM,
  });
  return {
    tool,
    async *run(input): AsyncGenerator<ToolPayload, ToolResult, undefined> {
      const { timezone = "UTC", format = "full" } = input.args as { timezone?: string; format?: Format };
      yield { case: "customToolStart", value: { toolName: TOOL_ID, toolId: TOOL_ID } };
      const zone = findZone(timezone);
      if (!zone) {
        const text = unknownZoneText(timezone);
        yield {
          case: "customToolDelta",
          value: { toolName: TOOL_ID, toolId: TOOL_ID, error: { message: text } },
        };
        return errorResult(text, ErrorCode.INVALID_ARGUMENT);
      }
      const reading = readClock(clock.now(), zone);
      const data = JSON.stringify(reading);
      yield {
        case: "customToolDelta",
        value: { toolName: TOOL_ID, toolId: TOOL_ID, responseType: CustomToolResponseType.JSON, data },
      };
      return create(ToolResultSchema, {
        outcome: ToolOutcome.OK,
        modelText: render(reading, format),
        resultJson: data,
      });
    },
  };
}

interface Reading {
  readonly timezone: string;
  readonly iso: string;
  readonly date: string;
  readonly time: string;
  readonly weekday: string;
  readonly utc_offset: string;
  readonly unix_seconds: number;
}

function readClock(now: Date, timezone: string): Reading {
  const parts = new Intl.DateTimeFormat("en-US", {
    timeZone: timezone,
    hourCycle: "h23",
    weekday: "long",
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    timeZoneName: "longOffset",
  }).formatToParts(now);
  const part = (type: Intl.DateTimeFormatPartTypes): string =>
    parts.find((candidate) => candidate.type === type)?.value ?? "";
  const date = `${part("year").padStart(4, "0")}-${part("month")}-${part("day")}`;
  const time = `${part("hour")}:${part("minute")}:${part("second")}`;
  const utcOffset = part("timeZoneName").replace("GMT", "") || "+00:00";
  return {
    timezone,
    iso: `${date}T${time}${utcOffset}`,
    date,
    time,
    weekday: part("weekday"),
    utc_offset: utcOffset,
    unix_seconds: Math.floor(now.getTime() / 1000),
  };
}

function render(reading: Reading, format: Format): string {
  switch (format) {
    case "full":
      return `${reading.weekday}, ${reading.date} ${reading.time} in ${reading.timezone} (UTC${reading.utc_offset})`;
    case "iso":
      return reading.iso;
    case "date":
      return reading.date;
    case "time":
      return reading.time;
    case "unix":
      return String(reading.unix_seconds);
  }
}

/** The zone's name as the time zone database spells it, or undefined. */
function findZone(name: string): string | undefined {
  try {
    return new Intl.DateTimeFormat("en-US", { timeZone: name.trim() || "UTC" }).resolvedOptions().timeZone;
  } catch {
    return undefined; // not a zone
  }
}

function unknownZoneText(name: string): string {
  const wanted = name.trim().toLowerCase().replace(/\s+/g, "_");
  const near = Intl.supportedValuesOf("timeZone")
    .filter(
      (zone) =>
        wanted !== "" &&
        zone
          .toLowerCase()
          .split("/")
          .some((part) => part === wanted),
    )
    .slice(0, 5);
  const hint =
    near.length > 0
      ? ` Did you mean ${near.join(" or ")}?`
      : " Use an IANA name such as Europe/Berlin or UTC.";
  return `"${cutChars(name, 100)}" is not a known time zone.${hint}`;
}
