/** Sources that a provider names beside or inside its answer. */
import { create } from "@bufbuild/protobuf";
import {
  CitationDeltaSchema,
  type CompletionDelta,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { citationDelta } from "../../deltas.js";
import { objectOf, stringOf, uint32Of, type Json } from "../../json.js";
import { splitText } from "../../well-formed.js";

const MAX_SOURCES = 200;
const MAX_SNIPPET_CHARS = 2_000;
const MAX_FIELD_CHARS = 2_048;

export interface Source {
  /** "" = the source has no address; then `documentId` names it. */
  readonly url: string;
  readonly title: string;
  readonly snippet: string;
  /** The number the answer's own markers use; 0 = none. */
  readonly number: number;
  readonly startChar: number;
  readonly endChar: number;
  /** The provider's name for it. Default: the address. */
  readonly documentId?: string;
  /** Kind of origin. Default "web". */
  readonly origin?: string;
  /** The text block that cites it, where it is not the open one. */
  readonly blockIndex?: number;
  /** Page of the passage, from 1. */
  readonly page?: number;
}

/**
 * Collects the sources of one answer and hands each out once, with the text block it belongs to: the open one, else the
 * next. Servers repeat their whole list on every chunk.
 */
export class SourceCollector {
  readonly #waiting: Source[] = [];
  readonly #seen = new Set<string>();
  #listed = 0;

  /** Top-level `citations` (addresses or objects, numbered by position) with `search_results` for their titles. */
  pushList(citations: unknown, searchResults: unknown): void {
    if (!Array.isArray(citations) || citations.length <= this.#listed) return;
    const results = Array.isArray(searchResults) ? (searchResults as unknown[]) : [];
    for (let at = this.#listed; at < citations.length; at++) {
      const item = citations[at] as unknown;
      const url = typeof item === "string" ? item : addressOf(objectOf(item));
      const result = objectOf(results.find((entry) => objectOf(entry)["url"] === url));
      const title = stringOf(result["title"]) || stringOf(objectOf(item)["title"]);
      this.push({
        url,
        title,
        snippet: stringOf(result["snippet"]),
        number: at + 1,
        startChar: 0,
        endChar: 0,
      });
    }
    this.#listed = citations.length;
  }

  /** `annotations` of a delta or message; only addresses count. */
  pushAnnotations(annotations: unknown): void {
    if (!Array.isArray(annotations)) return;
    for (const annotation of annotations as unknown[]) {
      const outer = objectOf(annotation);
      if (outer["type"] !== "url_citation") continue;
      const inner = typeof outer["url_citation"] === "object" ? objectOf(outer["url_citation"]) : outer;
      this.push({
        url: stringOf(inner["url"]),
        title: stringOf(inner["title"]),
        snippet: stringOf(inner["content"]),
        number: 0,
        startChar: uint32Of(inner["start_index"]) ?? 0,
        endChar: uint32Of(inner["end_index"]) ?? 0,
      });
    }
  }

  get waiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** Hands out what waits, for this text block. */
  flush(blockIndex: number, out: CompletionDelta[]): void {
    for (const source of this.#waiting.splice(0)) {
      const citation = create(CitationDeltaSchema, {
        blockIndex: source.blockIndex ?? blockIndex,
        startChar: source.startChar,
        endChar: source.endChar,
        document: {
          documentId: source.documentId ?? source.url,
          title: source.title,
          url: source.url,
          snippet: source.snippet,
          source: source.origin ?? "web",
          citationNumber: source.number,
          page: source.page ?? 0,
        },
      });
      out.push(citationDelta(citation));
    }
  }

  /** One source with the passage that cites it; each is taken once. Anything but an address or a named document is no source. */
  push(source: Source): void {
    const place = `${source.blockIndex ?? ""} ${source.startChar} ${source.endChar}`;
    const key = `${source.documentId ?? source.url} ${place}`;
    const isAddress = /^https?:\/\//i.test(source.url) && source.url.length <= MAX_FIELD_CHARS;
    const isNamed = source.url === "" && (source.documentId ?? "") !== "";
    if (!(isAddress || isNamed) || this.#seen.has(key) || this.#seen.size >= MAX_SOURCES) return;
    this.#seen.add(key);
    this.#waiting.push({
      ...source,
      url: clean(source.url, MAX_FIELD_CHARS),
      title: clean(source.title, MAX_FIELD_CHARS),
      snippet: clean(source.snippet, MAX_SNIPPET_CHARS),
      ...(source.documentId !== undefined && { documentId: clean(source.documentId, MAX_FIELD_CHARS) }),
    });
  }
}

function addressOf(item: Json): string {
  return stringOf(item["url"]) || stringOf(item["link"]);
}

function clean(text: string, maxChars: number): string {
  return (splitText(text, maxChars)[0] ?? "").replace(/\p{Surrogate}/gu, "\ufffd");
}
