/**
 * A document's text around a place. The service gives it part by part, from any place on: what is before the place is not
 * read, and what follows only as far as somebody wants it.
 */
import { useCallback, useEffect, useState } from "react";
import type { SourceDocument } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { explainError, type Explanation } from "../../client/explain-error.js";
import { usePage } from "../app/page-context.js";

export interface DocumentText {
  readonly document: SourceDocument | undefined;
  /** Where `text` begins in the document, in code points. */
  readonly offset: number;
  readonly text: string;
  readonly hasMore: boolean;
  readonly isLoading: boolean;
  readonly error: Explanation | undefined;
  readonly loadMore: () => void;
}

/** Letters before a place, and twice as many after it; the whole text of a large document would stop the page. */
const AROUND = 60_000;

interface Read {
  readonly key: string;
  readonly document?: SourceDocument;
  readonly text: string;
  readonly nextPartToken: string;
  readonly error?: Explanation;
}

/** @param from @param to the place that must be there, in code points. */
export function useDocumentText(documentId: string, from = 0, to = from): DocumentText {
  const { documentApi } = usePage();
  const offset = Math.max(0, from - AROUND);
  const key = `${documentId} ${offset}`;
  const atFirst = 2 * (to - offset + AROUND); // a code point takes at most two letters of a string
  const fresh: Read = { key, text: "", nextPartToken: String(offset) };
  const [read, setRead] = useState(fresh);
  const [wanted, setWanted] = useState(atFirst);
  if (read.key !== key) {
    setRead(fresh);
    setWanted(atFirst);
  }
  const { text, nextPartToken, error } = read;
  const isLoading = error === undefined && nextPartToken !== "" && text.length < wanted;

  useEffect(() => {
    if (!isLoading) return;
    const abort = new AbortController();
    documentApi.getDocument({ documentId, partToken: nextPartToken }, { signal: abort.signal }).then(
      ({ document, text: more, nextPartToken: next }) =>
        setRead((before) =>
          // a part that comes after the reader has gone elsewhere is nobody's
          before.key === key && before.nextPartToken === nextPartToken
            ? { key, document, text: before.text + more, nextPartToken: next }
            : before,
        ),
      (thrown: unknown) => {
        if (!abort.signal.aborted) setRead((before) => ({ ...before, error: explainError(thrown) }));
      },
    );
    return () => abort.abort();
  }, [documentApi, documentId, key, nextPartToken, isLoading]);

  return {
    document: read.document,
    offset,
    text: cutAt(text, wanted),
    hasMore: nextPartToken !== "" || text.length > wanted,
    isLoading,
    error,
    loadMore: useCallback(() => setWanted((letters) => letters + 2 * AROUND), []),
  };
}

/** The first letters of a text, never half of one. */
function cutAt(text: string, end: number): string {
  const isHalf = end < text.length && text.codePointAt(end - 1)! > 0xffff;
  return text.slice(0, isHalf ? end - 1 : end);
}
