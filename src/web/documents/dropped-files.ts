/** Files that were dropped on the page, those in folders too. */

/** Files of one drop: more belong on the command line. */
const MAX_FILES = 1_000;
/** What a folder is searched for; a file that is dropped itself counts whatever it is called. */
const READABLE = /\.(pdf|md|markdown|txt|html?|xhtml|csv|json|ya?ml|xml|rst|log)$/i;

/** Reads folders to their bottom; hidden files and folders are left out. */
export async function droppedFiles(transfer: Pick<DataTransfer, "items" | "files">): Promise<File[]> {
  const entries = [...transfer.items].flatMap((item) => item.webkitGetAsEntry?.() ?? []); // gone after the first await
  if (!entries.some((entry) => entry.isDirectory)) return [...transfer.files];
  const files: File[] = [];
  for (const entry of entries) await collect(entry, true, files);
  return files;
}

async function collect(entry: FileSystemEntry, isTop: boolean, files: File[]): Promise<void> {
  if (files.length >= MAX_FILES) return;
  if (isDirectory(entry)) {
    for (const child of await children(entry))
      if (!child.name.startsWith(".")) await collect(child, false, files);
  } else if (isFile(entry) && (isTop || READABLE.test(entry.name))) {
    files.push(await new Promise<File>((resolve, reject) => entry.file(resolve, reject)));
  }
}

/** A reader gives some at a time, and none when it is done. */
async function children(directory: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = directory.createReader();
  const all: FileSystemEntry[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject),
    );
    if (some.length === 0) return all.sort((a, b) => a.name.localeCompare(b.name));
    all.push(...some);
  }
}

function isDirectory(entry: FileSystemEntry): entry is FileSystemDirectoryEntry {
  return entry.isDirectory;
}

function isFile(entry: FileSystemEntry): entry is FileSystemFileEntry {
  return entry.isFile;
}
