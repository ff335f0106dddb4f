/** Versions that are in the cache, oldest first. */
export function cachedVersions(): { version: string; binary: string }[];
/** Fetches what is missing. Returns the list of what failed, as sentences. */
export function getNatsServers(which?: "oldest" | "newest" | "all", print?: (line: string) => void): string[];
