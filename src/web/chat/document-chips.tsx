/** The documents that were added while a message is written: they can be searched once they are ready. */
import { useState } from "react";
import { DocumentStatus, type SourceDocument } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { explainError } from "../../client/explain-error.js";
import { isIndexing, type DocumentsView, type Incoming } from "../../client/live/documents.js";
import { usePage } from "../app/page-context.js";
import { useIndexingProgress } from "../documents/use-indexing-progress.js";
import { Icon } from "../ui/icon.js";
import { IconButton } from "../ui/icon-button.js";
import { useObservable } from "../ui/use-observable.js";

export interface AddedDocuments {
  readonly add: (files: FileList | null) => void;
  readonly chips: readonly Chip[];
  /** Some cannot be searched yet. */
  readonly isBusy: boolean;
  readonly remove: (key: string) => void;
  readonly clear: () => void;
}

interface Chip {
  readonly key: string;
  readonly name: string;
  readonly state: "uploading" | "indexing" | "ready" | "failed";
  /** 0..1; undefined = not known. */
  readonly progress: number | undefined;
  readonly problem: string;
}

/** Follows the files that are added here, from the upload to the index. */
export function useAddedDocuments(): AddedDocuments {
  const { documents } = usePage();
  const view = useObservable(documents.view);
  const [keys, setKeys] = useState<readonly string[]>([]);
  const chips = keys.flatMap((key) => chipOf(view, key));
  const isBusy = chips.some(({ state }) => state === "uploading" || state === "indexing");
  useIndexingProgress(chips.some(({ state }) => state === "indexing"));
  return {
    chips,
    isBusy,
    add: (files) => {
      const added = [...(files ?? [])].map((file) => documents.addFile(file));
      setKeys((all) => [...all, ...added]);
    },
    remove: (key) => {
      documents.cancelIncoming(key);
      setKeys((all) => all.filter((each) => each !== key));
    },
    clear: () => setKeys([]),
  };
}

function chipOf({ incoming, documents }: DocumentsView, key: string): Chip[] {
  const entry = incoming.find((each) => each.key === key);
  if (!entry) return [];
  const document = documents.find(({ documentId }) => documentId === entry.documentId);
  return [{ key, name: entry.name, ...stateOf(entry, document) }];
}

function stateOf(
  entry: Incoming,
  document: SourceDocument | undefined,
): Pick<Chip, "state" | "progress" | "problem"> {
  if (entry.error) {
    const { text, advice } = explainError(entry.error);
    return { state: "failed", progress: undefined, problem: `${text} ${advice}` };
  }
  if (!document)
    return {
      state: "uploading",
      progress: entry.size > 0 ? entry.bytes / entry.size : undefined,
      problem: "",
    };
  if (isIndexing(document)) return { state: "indexing", progress: indexed(document), problem: "" };
  if (document.status === DocumentStatus.READY) return { state: "ready", progress: 1, problem: "" };
  return { state: "failed", progress: undefined, problem: document.error || "It was not indexed." };
}

/** How much of a document is indexed, 0..1; undefined = not known. */
export function indexed({ sizeBytes, processedBytes }: SourceDocument): number | undefined {
  const size = Number(sizeBytes);
  return size > 0 ? Math.min(Number(processedBytes) / size, 1) : undefined;
}

export function DocumentChips({ added }: { readonly added: AddedDocuments }) {
  if (added.chips.length === 0) return null;
  return (
    <ul className="plain chips" aria-label="Documents added">
      {added.chips.map(({ key, name, state, progress, problem }) => (
        <li key={key} className={`chip is-${state}`}>
          {state === "failed" ? (
            <Icon name="warn" />
          ) : state === "ready" ? (
            <Icon name="check" />
          ) : (
            <Icon name="file" />
          )}
          <span className="chip-name">{name}</span>
          {(state === "uploading" || state === "indexing") && (
            <>
              <progress
                max={1}
                value={progress}
                aria-label={`${state === "uploading" ? "Upload" : "Indexing"} of ${name}`}
              />
              <span className="chip-state">{state === "uploading" ? "Uploading" : "Indexing"}</span>
            </>
          )}
          {state === "ready" && <span className="chip-state">Can be searched</span>}
          {problem && (
            <span className="chip-state" role="alert">
              {problem}
            </span>
          )}
          <IconButton
            small
            icon="close"
            label={state === "uploading" ? `Cancel the upload of ${name}` : `Put ${name} away`}
            onClick={() => added.remove(key)}
          />
        </li>
      ))}
    </ul>
  );
}
