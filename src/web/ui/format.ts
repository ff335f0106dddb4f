/** Numbers for people, in the browser's language. */

const counts = new Intl.NumberFormat();

/** "12,345". */
export function formatCount(count: number): string {
  return counts.format(count);
}

/** Tokens in short: "128k", "1M". */
export function formatTokens(tokens: number): string {
  if (tokens >= 1_000_000) return `${trimmed(tokens / 1_000_000)}M`;
  return tokens >= 1_000 ? `${Math.round(tokens / 1_000)}k` : String(tokens);
}

/** An amount of money out of millionths; small ones with as many digits as they need. */
export function formatCost(micros: string | bigint, currency: string): string {
  const amount = Number(micros) / 1_000_000;
  const digits = amount > 0 && amount < 0.1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: 2 };
  try {
    return new Intl.NumberFormat(undefined, { style: "currency", currency, ...digits }).format(amount);
  } catch {
    return `${amount} ${currency}`.trim(); // no currency that the browser knows
  }
}

function trimmed(value: number): string {
  return String(Math.round(value * 10) / 10);
}
