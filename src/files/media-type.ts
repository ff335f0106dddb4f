/** The MIME type of an uploaded file: what the client says, else what its first bytes and its name say. */
import { isUnnamed, looksLikeHtml } from "../extract/media-type.js";

const BY_EXTENSION: Readonly<Record<string, string>> = {
  csv: "text/csv",
  htm: "text/html",
  html: "text/html",
  json: "application/json",
  markdown: "text/markdown",
  md: "text/markdown",
  pdf: "application/pdf",
  txt: "text/plain",
  xhtml: "application/xhtml+xml",
  xml: "application/xml",
  yaml: "application/yaml",
  yml: "application/yaml",
};

const BY_SIGNATURE: readonly (readonly [signature: string, type: string])[] = [
  ["%PDF-", "application/pdf"],
  ["PK\u0003\u0004", "application/zip"],
  ["\u0089PNG\r\n", "image/png"],
  ["\u00ff\u00d8\u00ff", "image/jpeg"],
  ["GIF8", "image/gif"],
  ["\u001f\u008b", "application/gzip"],
];

/** `said`: the client's, which counts unless it says nothing. */
export function mediaTypeOf(said: string, name: string, head: Uint8Array): string {
  const type = said.trim().toLowerCase();
  if (!isUnnamed(type)) return type;
  const start = Buffer.from(head.subarray(0, 1_024)).toString("latin1");
  const signed = BY_SIGNATURE.find(([signature]) => start.startsWith(signature));
  if (signed) return signed[1];
  const extension = /\.([A-Za-z0-9]+)$/.exec(name)?.[1]?.toLowerCase() ?? "";
  const named = BY_EXTENSION[extension];
  if (named) return named;
  if (looksLikeHtml(start)) return "text/html";
  return start.includes("\0") ? "application/octet-stream" : "text/plain";
}
