/** What one caller, one connection and one stream may cost a server. Shared by every transport. */
export interface ServerLimits {
  /** Largest request message, bytes. */
  readonly maxReceiveBytes: number;
  /** Open RPCs per HTTP/2 connection, announced in SETTINGS. */
  readonly maxConcurrentStreams: number;
  /** Open RPCs of the whole server; more answer OVERLOADED. */
  readonly maxCalls: number;
  /** Open RPCs of one user; more answer OVERLOADED. */
  readonly maxCallsPerPrincipal: number;
  /** Response bytes one stream may hold in this process before its handler is paused. Below 1 MiB with one frame on top. */
  readonly maxBufferedBytes: number;
  /** How long a reader may take nothing while bytes wait for it, before it is cut, ms. */
  readonly stallMs: number;
  /** How long a cut or ended stream may take to carry its status before it is reset, ms. */
  readonly cutGraceMs: number;
  /** Longest deadline that is honoured; a longer or missing one means no deadline of ours, ms. */
  readonly maxTimeoutMs: number;
  /** Idle time after which an HTTP/2 connection is probed, and how long the answer may take, ms. */
  readonly keepaliveMs: number;
  readonly keepaliveTimeoutMs: number;
}

export const DEFAULT_LIMITS: ServerLimits = {
  maxReceiveBytes: 4 * 1024 * 1024,
  maxConcurrentStreams: 1000,
  maxCalls: 10_000,
  maxCallsPerPrincipal: 2_000,
  maxBufferedBytes: 512 * 1024,
  stallMs: 30_000,
  cutGraceMs: 2_000,
  maxTimeoutMs: 24 * 60 * 60 * 1000,
  keepaliveMs: 60_000,
  keepaliveTimeoutMs: 20_000,
};
