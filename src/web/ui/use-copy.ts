import { useCallback, useEffect, useState } from "react";

/** How long a button says that it has copied. */
const SAID_MS = 2_000;

/** Copies a text, and says for a while how that went; undefined = nothing was copied lately. */
export function useCopy(): readonly ["copied" | "failed" | undefined, (text: string) => void] {
  const [outcome, setOutcome] = useState<"copied" | "failed">();
  useEffect(() => {
    if (!outcome) return undefined;
    const timer = setTimeout(() => setOutcome(undefined), SAID_MS);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = useCallback((text: string): void => {
    const fail = (): void => setOutcome("failed"); // not allowed, or no secure context: it can still be selected
    if (!navigator.clipboard) return fail();
    navigator.clipboard.writeText(text).then(() => setOutcome("copied"), fail);
  }, []);
  return [outcome, copy];
}
