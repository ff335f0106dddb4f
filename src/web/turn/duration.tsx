/** Times for people, and a timer for what is still running. */
import { createContext, useContext, useEffect, useState, type ReactNode } from "react";

/** A time too short to be told. */
const NO_TIME_MS = 50;

/** What took so long, or nothing where it took no time to speak of. */
export function toldDuration(ms: number): string {
  return ms < NO_TIME_MS ? "" : durationText(ms);
}

/** "0.4 s", "3.2 s", "1 min 5 s". */
export function durationText(ms: number): string {
  if (ms < 59_950) return `${(ms / 1_000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1_000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** True while nothing is heard of what runs: its clocks stand still, for nobody knows whether it does. */
export const ClockStopsContext = createContext(false);

/** Counts whole seconds since a time on `performance.now()`'s clock. Not read out. */
export function Elapsed({ sinceMs }: { readonly sinceMs: number | undefined }): ReactNode {
  const [nowMs, setNowMs] = useState(() => performance.now());
  const stands = useContext(ClockStopsContext);
  useEffect(() => {
    if (sinceMs === undefined || stands) return undefined;
    setNowMs(performance.now());
    const timer = setInterval(() => setNowMs(performance.now()), 1_000);
    return () => clearInterval(timer);
  }, [sinceMs, stands]);
  if (sinceMs === undefined) return null;
  const seconds = Math.max(0, Math.floor((nowMs - sinceMs) / 1_000));
  return seconds === 0 ? null : (
    <span className="elapsed" aria-hidden="true">
      {seconds < 60 ? `${seconds} s` : durationText(seconds * 1_000)}
    </span>
  );
}
