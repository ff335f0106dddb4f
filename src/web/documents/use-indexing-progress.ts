import { useEffect } from "react";
import { usePage } from "../app/page-context.js";

const EVERY_MS = 1_000;

/** Keeps asking how the indexing goes, as long as some is under way; that it has ended, an event tells. */
export function useIndexingProgress(isIndexing: boolean): void {
  const { documents } = usePage();
  useEffect(() => {
    if (!isIndexing) return;
    const timer = setInterval(() => void documents.follow(), EVERY_MS);
    return () => clearInterval(timer);
  }, [documents, isIndexing]);
}
