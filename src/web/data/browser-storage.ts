/** What the page keeps in the browser. A browser that refuses (private windows, full storage) costs only the keeping. */
/** Reads JSON; `fallback` when there is none or it is broken. */
export function readStored<T>(key: string, fallback: T): T {
  try {
    const text = localStorage.getItem(key);
    return text === null ? fallback : (JSON.parse(text) as T);
  } catch {
    return fallback; // somebody else's value, or no storage
  }
}

/** Keeps JSON; undefined removes it. */
export function store(key: string, value: unknown): void {
  try {
    if (value === undefined) localStorage.removeItem(key);
    else localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // not kept: the page works on with what it has in memory
  }
}
