import { DocumentStatus, type SourceDocument } from "../../../gen/turnwire/chat/v1/types_pb.js";

const UNITS = ["bytes", "kB", "MB", "GB"];

/** A number of bytes for people. */
export function bytesForPeople(bytes: number): string {
  let value = bytes;
  let unit = 0;
  for (; value >= 1000 && unit < UNITS.length - 1; unit += 1) value /= 1000;
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** Kind, size and passages of a document, in one line. */
export function documentFacts({ mediaType, sizeBytes, chunks, createTime, status }: SourceDocument): string {
  const size = Number(sizeBytes);
  const added = createTime && new Date(Number(createTime.seconds) * 1000);
  return [
    kindOf(mediaType),
    /charset=([\w-]+)/.exec(mediaType)?.[1] ?? "",
    size > 0 ? bytesForPeople(size) : "",
    status === DocumentStatus.READY ? `${chunks} ${chunks === 1 ? "passage" : "passages"}` : "",
    added ? added.toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" }) : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

function kindOf(mediaType: string): string {
  const kind = mediaType.split(";", 1)[0]!;
  switch (kind) {
    case "application/pdf":
      return "PDF";
    case "text/markdown":
      return "Markdown";
    case "text/html":
    case "application/xhtml+xml":
      return "Web page";
    case "text/plain":
      return "Text";
    default:
      return kind;
  }
}
