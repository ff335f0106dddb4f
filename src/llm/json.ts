/** Careful reading of JSON that a stranger sent: every member may be missing, null or of another type. */

export type Json = Readonly<Record<string, unknown>>;

/** The value if it is an object (or list), else an empty one. */
export function objectOf(value: unknown): Json {
  return typeof value === "object" && value !== null ? (value as Json) : NOTHING;
}

/** The objects of a list; [] where it is none. */
export function objectsOf(value: unknown): Json[] {
  return Array.isArray(value) ? (value as unknown[]).map(objectOf) : [];
}

/** The value if it is a string, else "". */
export function stringOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** The value if it is a whole number that fits a uint32, else undefined. */
export function uint32Of(value: unknown): number | undefined {
  return typeof value === "number" && value >= 0 && value <= 0xffffffff ? Math.round(value) : undefined;
}

/** The parsed text, or undefined (which JSON cannot say) when it does not parse. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined; // callers say what that means
  }
}

/** True for a text that is a whole JSON object. */
export function isJsonObject(text: string): boolean {
  const value = parseJson(text);
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** True for a value with objects or lists inside of each other past `levels`. */
export function nestsDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((member) => nestsDeeper(member, levels - 1));
}

const NOTHING: Json = Object.freeze({});
