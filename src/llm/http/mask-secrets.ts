/** What a provider says may be shown only without what must not leave: keys, authorization, addresses, prompts. */

const MAX_PUBLIC_CHARS = 200;

/** Patterns of things that never leave, with what stands for them. Order matters: the specific ones come first. */
const MASKS: readonly (readonly [RegExp, string])[] = [
  [/\b[a-z][a-z0-9+.-]*:\/\/[^\s"'<>)\]]+/gi, "[address]"],
  [/\b(bearer|basic)\s+[^\s"',;]+/gi, "$1 [key]"],
  [
    /\b((?:x-)?api[-_ ]?key|authorization|token|secret|password)(["']?\s*[:=]\s*["']?)(?!\[)[^\s"',;]+/gi,
    "$1$2[key]",
  ],
  [/\b(?:sk|pk|rk|gsk|xai|hf|key|AIza|ghp|glpat|nvapi|r8|eyJ)[-_.]?[A-Za-z0-9*_\-.]{12,}/g, "[key]"],
  [/(?<![A-Za-z0-9])(?=[A-Za-z_\-.]*[0-9])(?=[0-9_\-.]*[A-Za-z])[A-Za-z0-9_-]{32,}(?![A-Za-z0-9])/g, "[key]"],
  [/\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b/g, "[address]"],
  [/\b(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)+):\d{2,5}\b/gi, "[address]"],
  [/[\w.+-]+@[\w-]+(?:\.[\w-]+)+/g, "[address]"],
  [/"[^"]{80,}"?|'[^']{80,}'?/g, '"..."'],
];

/**
 * One line of at most 200 characters with secrets, addresses and long quotations masked. `secrets` are the exact values
 * in use (the configured key and headers), masked wherever they stand.
 */
export function publicText(text: string, secrets: readonly string[] = []): string {
  let shown = text.slice(0, 4096);
  for (const secret of secrets) {
    if (secret.length >= 4) shown = shown.replaceAll(secret, "[key]");
  }
  shown = shown.replace(/[\s\p{Cc}]+/gu, " ").trim();
  for (const [pattern, mask] of MASKS) shown = shown.replace(pattern, mask);
  shown = shown.replace(/\p{Surrogate}/gu, "\ufffd");
  return shown.length <= MAX_PUBLIC_CHARS
    ? shown
    : `${[...shown].slice(0, MAX_PUBLIC_CHARS - 3).join("")}...`;
}
