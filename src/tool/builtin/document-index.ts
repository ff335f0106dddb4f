/** The port of the caller's documents, named for what `search` needs; src/main passes an index in. */
import type { SearchScope } from "../../../gen/turnwire/tool/v1/tool_service_pb.js";
import type { Owner } from "../../lib/rpc/service-binding.js";

/** A passage of a document, with what is known of it. */
export interface IndexedPassage {
  readonly documentId: string;
  readonly title: string;
  /** Kind of origin: "text", "upload", "web". */
  readonly source: string;
  readonly mediaType: string;
  readonly tags: readonly string[];
  /** "" = it was added without an address. */
  readonly url: string;
  readonly fileId: string;
  readonly chunkIndex: number;
  /** 0 = has no pages. */
  readonly page: number;
  readonly heading: string;
  readonly text: string;
  /** Positions of `text` in the document, in code points. */
  readonly startChar: number;
  readonly endChar: number;
  /** Greater is better; comparable within one search. */
  readonly score: number;
}

export interface DocumentIndex {
  /** Whether the caller has anything that could be found. */
  hasDocuments(caller: Owner): Promise<boolean>;
  /** The caller's best passages, best first; of others nothing is ever found. */
  search(
    caller: Owner,
    query: string,
    scope: SearchScope,
    limit: number,
    signal: AbortSignal,
  ): Promise<readonly IndexedPassage[]>;
}
