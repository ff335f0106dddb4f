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

/** The value if it is a whole number that fits a uint32, also one written as text, else undefined. */
export function uint32Of(value: unknown): number | undefined {
  const number = typeof value === "string" && /^\d{1,10}$/.test(value) ? Number(value) : value;
  return typeof number === "number" && number >= 0 && number <= 0xffffffff ? Math.round(number) : undefined;
}

/** JSON that a server may send as text or as the value itself: the text; "" where it is neither text nor object. */
export function jsonTextOf(value: unknown): string {
  return typeof value === "object" && value !== null ? JSON.stringify(value) : stringOf(value);
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
