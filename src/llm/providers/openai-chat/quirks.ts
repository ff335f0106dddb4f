/** How a server of the OpenAI chat dialect differs from the others in what it takes. All of it is data. */
import { ErrorCode } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../../lib/errors.js";
import type { Json } from "../../json.js";
import type { DialectSettings } from "../dialect.js";
import { COMPATIBLE, vendorAt, VENDORS, type Vendor } from "./vendors.js";

/** Members that an effort adds to the request; undefined = the model does not take it. */
export interface EffortMembers {
  readonly off?: Json;
  readonly low?: Json;
  readonly medium?: Json;
  readonly high?: Json;
}

/** What a tool choice may be beside "auto"; `any` is what some call `required`. */
export type ToolChoiceName = "none" | "required" | "any" | "one";

/** Kinds of media that a message may hold beside images. */
export type MediaKind = "image" | "audio" | "file";

export interface ChatQuirks {
  /** Path of the call; `{model}` stands for the model's name, `{apiVersion}` for that quirk. */
  readonly path: string;
  readonly apiVersion: string;
  /** Path of the model list; "" = there is none. */
  readonly modelsPath: string;
  readonly embeddingsPath: string;
  /** The header that carries the key; `authorization` carries it as a bearer token. */
  readonly keyHeader: string;
  /** The member that limits the answer. */
  readonly maxTokensField: string;
  readonly seedField: string;
  /** Whether `stream_options.include_usage` may be sent. */
  readonly streamUsage: boolean;
  /** Most texts at which the model stops. */
  readonly maxStops: number;
  readonly toolChoices: readonly ToolChoiceName[];
  /** Formats of the answer that it takes. */
  readonly formats: readonly ("object" | "schema")[];
  readonly media: readonly MediaKind[];
  readonly efforts: EffortMembers;
  /** Effort `off` is also sent to a model of which is not known whether it reasons. */
  readonly offByDefault: boolean;
  /** The member of an assistant message in which earlier reasoning goes back; "" = it does not. */
  readonly reasoningField: string;
  /** Marks where the provider's prompt cache may end, where that is asked for. */
  readonly cacheMarks: boolean;
  /** The form of call ids it takes: `nine` letters or digits. */
  readonly callIds: "any" | "nine";
  /** A user may speak right after a tool. */
  readonly userAfterTool: boolean;
  /** Parameters it does not take, by their names in `Sampling` and `CompletionInput`. */
  readonly drops: readonly string[];
  /** Members that each request has. */
  readonly extra: Json;
}

/** The quirks of the server at this address: those of its vendor, found by host or named, then what the settings say. */
export function chatQuirks({ baseUrl, quirks }: DialectSettings): ChatQuirks & { readonly vendor: Vendor } {
  const name = quirks["vendor"];
  const vendor = name === undefined ? vendorAt(new URL(baseUrl)) : VENDORS.get(String(name));
  if (!vendor) throw wrong("vendor", `must be one of ${[...VENDORS.keys()].join(", ")}`);
  const own = Object.fromEntries(
    Object.entries(quirks)
      .filter(([key]) => key !== "vendor")
      .map(([key, value]) => [key, checked(key, value)]),
  );
  return { ...COMPATIBLE, ...vendor.quirks, ...vendor.quirksAt?.(new URL(baseUrl)), ...own, vendor };
}

/** The same, for one of its models. */
export function quirksOfModel(quirks: ReturnType<typeof chatQuirks>, upstreamModel: string): ChatQuirks {
  const rule = quirks.vendor.models?.find(({ match }) => match.test(upstreamModel));
  return rule
    ? { ...quirks, ...rule.quirks, drops: [...quirks.drops, ...(rule.quirks.drops ?? [])] }
    : quirks;
}

/** A setting, if it is of the kind of its default. */
function checked(key: string, value: unknown): unknown {
  const usual: unknown = (COMPATIBLE as unknown as Json)[key];
  if (usual === undefined) throw wrong(key, "is not known");
  if (Array.isArray(usual)) {
    const isTexts = Array.isArray(value) && value.every((item) => typeof item === "string");
    if (!isTexts) throw wrong(key, "must be a list of texts");
  } else if (typeof value !== typeof usual || value === null || Array.isArray(value)) {
    throw wrong(key, `must be ${KINDS[typeof usual] ?? "another value"}`);
  }
  return value;
}

const KINDS: Readonly<Record<string, string>> = {
  ...{ string: "a text", number: "a number", boolean: "true or false", object: "a mapping" },
};

function wrong(key: string, what: string): TurnError {
  const field = `quirks.${key}`;
  return new TurnError(ErrorCode.INVALID_ARGUMENT, { message: `${field} ${what}`, details: { field } });
}
