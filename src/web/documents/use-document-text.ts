/** A document's text, read part by part until the wanted place is there. */
import { useEffect, useState } from "react";
import type { SourceDocument } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { explainError, type Explanation } from "../../client/explain-error.js";
import { usePage } from "../app/page-context.js";

export interface DocumentText {
  readonly document: SourceDocument | undefined;
  readonly text: string;
  readonly hasMore: boolean;
  readonly isLoading: boolean;
  readonly error: Explanation | undefined;
  readonly loadMore: () => void;
}

interface State {
  readonly documentId: string;
  readonly document?: SourceDocument;
  readonly text: string;
  readonly nextPartToken: string;
  readonly isLoading: boolean;
  readonly error?: Explanation;
}

/** @param untilChar read on until the text reaches this place, in code points. */
export function useDocumentText(documentId: string, untilChar: number): DocumentText {
  const { documentApi } = usePage();
  const fresh: State = { documentId, text: "", nextPartToken: "", isLoading: true };
  const [state, setState] = useState<State>(fresh);
  const [wanted, setWanted] = useState(1);
  if (state.documentId !== documentId) setState(fresh);

  useEffect(() => {
    const abort = new AbortController();
    const read = async (): Promise<void> => {
      let text = "";
      let partToken = "";
      for (let part = 1; ; part += 1) {
        const reply = await documentApi.getDocument({ documentId, partToken }, { signal: abort.signal });
        text += reply.text;
        partToken = reply.nextPartToken;
        const isEnough = part >= wanted && text.length > untilChar * 2;
        const isLoading = partToken !== "" && !isEnough && part < MAX_PARTS;
        setState({ documentId, document: reply.document, text, nextPartToken: partToken, isLoading });
        if (!isLoading) return;
      }
    };
    read().catch((error: unknown) => {
      if (abort.signal.aborted) return;
      setState((before) => ({ ...before, isLoading: false, error: explainError(error) }));
    });
    return () => abort.abort();
  }, [documentApi, documentId, untilChar, wanted]);

  return {
    document: state.document,
    text: state.text,
    hasMore: state.nextPartToken !== "",
    isLoading: state.isLoading,
    error: state.error,
    loadMore: () => setWanted((parts) => parts + 1),
  };
}

/** 16 MiB of text: more than anybody reads in a page. */
const MAX_PARTS = 16;
