/** How a server of the OpenAI chat dialect differs from the others in what it takes. All of it is data. */
import { ErrorCode } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../../../lib/errors.js";
import type { Json } from "../../json.js";
import type { DialectSettings } from "../dialect.js";
import type { ChatQuirks } from "./chat-quirks.js";
import { COMPATIBLE, vendorAt, VENDORS, type Vendor } from "./vendors.js";

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
