/** The end of an exhaustive switch: a type error when a case was forgotten, a thrown error when untyped data got here. */
export function assertNever(value: never, what = "value"): never {
  throw new Error(`unexpected ${what}: ${JSON.stringify(value)}`);
}
