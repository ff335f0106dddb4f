import { expect, test } from "vitest";
import { mediaTypeOf } from "./media-type.js";

test.each([
  ["Text/Markdown", "a.pdf", "%PDF-1.7", "text/markdown"],
  ["", "a.txt", "%PDF-1.7", "application/pdf"],
  ["application/octet-stream", "a.docx", "PK\u0003\u0004", "application/zip"],
  ["", "NOTES.MD", "# hi", "text/markdown"],
  ["", "page", "  <!DOCTYPE html><p>", "text/html"],
  ["", "page", "just words", "text/plain"],
  ["", "page", "a\u0000b", "application/octet-stream"],
  ["application/x-www-form-urlencoded", "a.csv", "1,2", "text/csv"],
])("media type - said %j, named %s, beginning with %j: %s", (said, name, head, type) => {
  expect(mediaTypeOf(said, name, Buffer.from(head, "latin1"))).toBe(type);
});
