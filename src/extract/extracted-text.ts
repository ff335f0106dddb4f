/** What the extraction process is asked and what it answers. */

export interface ExtractRequest {
  readonly kind: "html" | "pdf";
  readonly bytes: Uint8Array;
  /** The Content-Type header. */
  readonly contentType: string;
  /** Most characters of text wanted. */
  readonly maxChars: number;
  /** Take all of an HTML page, and not only the article in it. Default false. */
  readonly wholePage?: boolean;
  /** Pages of a PDF that are read. Default 1,000. */
  readonly maxPages?: number;
}

export interface ExtractedText {
  readonly title: string;
  readonly text: string;
  /** There was more text than wanted. */
  readonly truncated: boolean;
  /** Author, language, number of pages and the like; never empty values. */
  readonly metadata: Readonly<Record<string, string>>;
}

/**
 * `body`: the whole text of a page, sent before its article is looked for, which may take too long. `unreadable`: what the
 * process was given is not a document of its kind, in words for the model. `text` and `unreadable` are the last answer.
 */
export type ExtractAnswer =
  | { readonly kind: "body"; readonly extracted: ExtractedText }
  | { readonly kind: "text"; readonly extracted: ExtractedText }
  | { readonly kind: "unreadable"; readonly why: "unreadable" | "encrypted"; readonly reason: string };
