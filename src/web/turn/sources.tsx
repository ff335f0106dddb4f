/** The sources under an answer. */
import { memo, type ReactNode } from "react";
import type { Document } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { CitationMap } from "../../client/view.js";
import { Disclosure } from "./disclosure.js";
import { DocumentItem } from "./document-list.js";

/** What the answer cites, by number, and what stands behind it without one. */
export const Sources = memo(function Sources(props: {
  readonly citations: CitationMap;
  readonly others: readonly Document[];
}): ReactNode {
  const { citations, others } = props;
  const count = citations.size + others.length;
  if (count === 0) return null;
  return (
    <Disclosure
      className="sources"
      openByDefault
      summary={
        <span className="disclosure-title">
          {count} {count === 1 ? "source" : "sources"}
        </span>
      }
    >
      {() => (
        <ol className="documents" aria-label="Sources">
          {[...citations]
            .sort(([a], [b]) => a - b)
            .map(([number, document]) => (
              <DocumentItem key={number} document={document} number={number} />
            ))}
          {others.map((document, i) => (
            <DocumentItem key={`other-${i}`} document={document} />
          ))}
        </ol>
      )}
    </Disclosure>
  );
});
