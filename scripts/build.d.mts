/** True when it built. */
export function buildIfStale(): Promise<boolean>;
/** Builds dist/ from scratch. */
export function buildAll(): Promise<void>;
