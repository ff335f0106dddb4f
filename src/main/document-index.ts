/** The documents' index as the `search` tool sees it, over connections of its own. */
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { hasDocuments, searchPassages } from "../documents/pg-document-index.js";
import type { Logger } from "../lib/log.js";
import { abortable } from "../lib/signals.js";
import { Channel } from "../store/db.js";
import type { DocumentIndex } from "../tool/builtin/document-index.js";

const CONNECTIONS = 4;

export interface OpenedIndex extends DocumentIndex {
  close(): Promise<void>;
}

/** Connects when it is asked first. */
export function openDocumentIndex(databaseUrl: string, logger: Logger): OpenedIndex {
  const channel = new Channel(databaseUrl, CONNECTIONS, logger);
  return {
    hasDocuments: (owner) => hasDocuments(channel, owner),
    search: (owner, query, scope, limit, signal) => {
      const { sources, projectIds, tags, documentIds, after, before } = scope;
      const narrowed = {
        sources,
        projectIds,
        tags,
        documentIds,
        ...(after ? { after: timestampDate(after) } : {}),
        ...(before ? { before: timestampDate(before) } : {}),
      };
      return abortable(searchPassages(channel, owner, query, narrowed, limit), signal);
    },
    close: () => channel.close(),
  };
}

/** An index whose database is known later: in all-in-one the tool peer is there before Postgres is. */
export function laterIndex(opening: Promise<DocumentIndex>): DocumentIndex {
  return {
    hasDocuments: async (owner) => (await opening).hasDocuments(owner),
    search: async (...asked) => (await opening).search(...asked),
  };
}
