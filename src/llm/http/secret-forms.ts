/** How a secret may look where somebody echoes it. */

/** Shorter ones are found everywhere. */
const MIN_CORE_CHARS = 8;

/** The secret as it is, in a URL, in JSON, in JSON within JSON, in hexadecimal digits. */
export function plainForms(secret: string): string[] {
  const inJson = jsonText(secret);
  const hex = Buffer.from(secret).toString("hex");
  return [...new Set([secret, encodeURIComponent(secret), inJson, jsonText(inJson), hex])];
}

/**
 * The characters of base64 that hang on the secret alone, for each place at which it may begin in what was encoded: they
 * stand in the base64 of "Bearer SECRET" and "user:SECRET", too.
 */
export function base64Cores(secret: string): string[] {
  return [0, 1, 2].flatMap((offset) => {
    const bytes = Buffer.concat([Buffer.alloc(offset), Buffer.from(secret)]);
    const whole = bytes.subarray(0, bytes.length - (bytes.length % 3));
    const core = whole.toString("base64").slice(offset === 0 ? 0 : 4);
    return core.length < MIN_CORE_CHARS ? [] : [core, core.replaceAll("+", "-").replaceAll("/", "_")];
  });
}

function jsonText(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}
