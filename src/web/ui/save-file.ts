/** How long the browser may take to begin with a download, milliseconds. */
const KEPT_MS = 60_000;

/** Gives the user a file to keep. */
export function saveFile(parts: BlobPart[], name: string, type = "application/octet-stream"): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS);
}
