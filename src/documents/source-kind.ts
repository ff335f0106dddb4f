/** What a source is, by what is said of it and by its first bytes. Pure. */
import { isUtf8 } from "node:buffer";
import { DocumentFailure } from "../../gen/turnwire/chat/v1/types_pb.js";
import { decodeUtf8, labelOf, wideLabel } from "../extract/charset.js";
import { isHtml, isText, isUnnamed, looksLikeHtml, mediaTypeOnly } from "../extract/media-type.js";
import { UnreadableDocument } from "./unreadable.js";

export type SourceKind = "text" | "html" | "pdf";

/** Throws UnreadableDocument for what is none of the three. `contentType` may be empty. */
export function kindOf(contentType: string, name: string, head: Uint8Array): SourceKind {
  const type = mediaTypeOnly(contentType);
  const start = Buffer.from(head).toString("latin1");
  if (start.slice(0, 1_024).trimStart().startsWith("%PDF-")) return "pdf";
  if (type === "application/pdf")
    throw new UnreadableDocument(
      DocumentFailure.BROKEN,
      "It is called a PDF and is none. Open it in its program, save it anew and add that.",
    );
  if (start.startsWith("PK\u0003\u0004") || (start.includes("\0") && !mayHaveZeros(head)))
    throw unsupported(type);
  if (isHtml(type)) return "html";
  if (!isUnnamed(type) && !isText(type)) throw unsupported(type);
  const looksHtml = looksLikeHtml(start.replaceAll("\0", "")) || /\.x?html?$/i.test(name);
  return looksHtml && (isUnnamed(type) || type === "text/plain") ? "html" : "text";
}

const STRAY_ZEROS = 0.01;

/** UTF-16 is full of zeros; in other text a stray one is damage, and becomes a replacement character. */
function mayHaveZeros(head: Uint8Array): boolean {
  const [first, second] = head;
  if ((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff) || wideLabel(head))
    return true;
  const text = decodeUtf8(head);
  if (text === undefined || /[\u0001-\u0008\u000e-\u001f]/.test(text)) return false;
  return text.split("\0").length - 1 <= text.length * STRAY_ZEROS;
}

/** A decoder for text of which `head` is the beginning, or all: byte order mark, then the header, then UTF-8 if it is that. */
export function textDecoderFor(contentType: string, head: Uint8Array, isAll: boolean): TextDecoder {
  const label = labelOf(head, contentType);
  if (label) {
    try {
      return new TextDecoder(label);
    } catch {
      // a label that nobody knows: guess instead
    }
  }
  const utf8 = isAll ? isUtf8(head) : decodeUtf8(head) !== undefined;
  return new TextDecoder(utf8 ? "utf-8" : "windows-1252");
}

function unsupported(type: string): UnreadableDocument {
  const what = isUnnamed(type) ? "This kind of file" : `A file of type ${type.slice(0, 100)}`;
  return new UnreadableDocument(
    DocumentFailure.UNSUPPORTED_TYPE,
    `${what} cannot be read. Add it as PDF, HTML, Markdown or plain text.`,
  );
}
