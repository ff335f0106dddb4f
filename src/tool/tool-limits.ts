/** What the tool peer allows its callers and its tools. */

export interface ToolServiceLimits {
  /** Calls that may run at once. Default 128. */
  readonly maxConcurrency?: number;
  /** Calls of one tool that may run at once in this process, whatever the tool allows a turn. Default 32. */
  readonly maxConcurrencyPerTool?: number;
  /** How long a call may take unless the tool or the caller says less, ms. Default 120,000. */
  readonly defaultTimeoutMs?: number;
  /** Silence after which a keepalive is sent, ms. Default 10,000. */
  readonly keepaliveMs?: number;
  /** How long a cancelled tool may take to end before it is abandoned, ms. Default 1,000. */
  readonly graceMs?: number;
  /** Model text of a tool that does not name its own limit, bytes. Default 1 MiB. */
  readonly defaultMaxOutputBytes?: number;
  /** Packets one call may send. Default 10,000. */
  readonly maxPacketsPerCall?: number;
  /** Bytes of packets one call may send. Default 8 MiB. */
  readonly maxPacketBytesPerCall?: number;
  /** Calls remembered by key. Default 10,000, for at most `ledgerTtlMs` (default 1 h) and 64 MiB of results. */
  readonly ledgerEntries?: number;
  readonly ledgerTtlMs?: number;
}

const DEFAULT_LIMITS: Required<ToolServiceLimits> = {
  maxConcurrency: 128,
  maxConcurrencyPerTool: 32,
  defaultTimeoutMs: 120_000,
  keepaliveMs: 10_000,
  graceMs: 1_000,
  defaultMaxOutputBytes: 1024 * 1024,
  maxPacketsPerCall: 10_000,
  maxPacketBytesPerCall: 8 * 1024 * 1024,
  ledgerEntries: 10_000,
  ledgerTtlMs: 3_600_000,
};

/** Fills in what was left out. */
export function completeLimits(limits: ToolServiceLimits = {}): Required<ToolServiceLimits> {
  return { ...DEFAULT_LIMITS, ...limits };
}
