/** The `documents` commands: add files, addresses or standard input, follow how they are indexed, list, read, delete. */
import { open, readdir, stat } from "node:fs/promises";
import path from "node:path";
import { toJsonString } from "@bufbuild/protobuf";
import type { AddDocumentRequest } from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import {
  DocumentStatus,
  SourceDocumentSchema,
  type SourceDocument,
} from "../../../gen/turnwire/chat/v1/types_pb.js";
import { systemClock } from "../../lib/clock.js";
import type { CliContext } from "../context.js";
import { CliError, ExitCode } from "../exit-codes.js";
import { oneLine, PAGE_SIZE, pages, printRows, time } from "./list.js";

const PART_BYTES = 1024 * 1024;
const MAX_STDIN_BYTES = 50 * 1024 * 1024;
/** Between two looks at a document that is being indexed, ms. */
const LOOK_MS = 250;

export interface AddOptions {
  readonly title?: string;
  readonly tag: readonly string[];
  readonly type?: string;
  /** False: do not wait until it can be found. */
  readonly wait: boolean;
}

const READABLE = /\.(pdf|md|markdown|txt|html?|xhtml|csv|json|ya?ml|xml|rst|log)$/i;

/** The readable files of a folder, in their order, hidden ones left out; of everything else itself. */
async function filesOf(source: string): Promise<string[]> {
  const about = await stat(source).catch(() => undefined); // "-", an address, or a file whose absence is told later
  if (!about?.isDirectory()) return [source];
  const entries = await readdir(source, { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => entry.isFile() && READABLE.test(entry.name))
    .map((entry) => path.join(entry.parentPath, entry.name))
    .filter(
      (file) =>
        !path
          .relative(source, file)
          .split(path.sep)
          .some((part) => part.startsWith(".")),
    );
  if (files.length === 0)
    throw new CliError(ExitCode.USAGE, `there is no readable file in ${source}: name the files themselves`);
  return files.sort();
}

/** Adds each source: a file, a folder with all that is in it, an http or https address, or "-" for standard input. Ends with 1 if one of them failed. */
export async function addDocuments(
  sources: readonly string[],
  options: AddOptions,
  context: CliContext,
): Promise<ExitCode> {
  let exit: ExitCode = ExitCode.OK;
  const each = await Promise.all(sources.map(filesOf));
  for (const source of each.flat()) {
    const added = await addOne(source, options, context);
    const document = options.wait ? await follow(added, context) : added;
    await printDocument(document, context);
    if (document.status === DocumentStatus.FAILED || document.status === DocumentStatus.CANCELLED)
      exit = ExitCode.TURN_FAILED;
  }
  return exit;
}

async function addOne(source: string, options: AddOptions, context: CliContext): Promise<SourceDocument> {
  const { client, signal } = context;
  const from = await sourceOf(source, options, context);
  const { document } = await client.documents.addDocument(
    { requestId: crypto.randomUUID(), title: options.title ?? "", tags: [...options.tag], source: from },
    { signal },
  );
  return document!;
}

async function sourceOf(
  source: string,
  options: AddOptions,
  context: CliContext,
): Promise<AddDocumentRequest["source"]> {
  if (/^https?:\/\//i.test(source)) return { case: "url", value: source };
  const name = source === "-" ? "standard-input.txt" : path.basename(source);
  const parts = source === "-" ? readStdin(context) : await readFileParts(source);
  return { case: "fileId", value: await uploadParts(parts, name, options.type ?? "", context) };
}

interface Part {
  readonly data: Uint8Array;
  readonly offset: number;
  readonly last: boolean;
  readonly totalBytes: number;
}

async function uploadParts(
  parts: AsyncIterable<Part>,
  name: string,
  mediaType: string,
  { client, terminal, signal }: CliContext,
): Promise<string> {
  const uploadId = crypto.randomUUID();
  let fileId = "";
  for await (const { data, offset, last, totalBytes } of parts) {
    if (!last) terminal.passing(`uploading ${name}: ${percent(offset, totalBytes)}`);
    const part = { uploadId, name, mediaType, offset: String(offset), data, last };
    const { file } = await client.files.uploadFile(part, { signal });
    fileId = file?.fileId ?? "";
  }
  return fileId;
}

async function readFileParts(file: string): Promise<AsyncIterable<Part>> {
  const facts = await stat(file).catch(() => undefined);
  if (!facts?.isFile()) throw new CliError(ExitCode.USAGE, `there is no file ${file}`);
  return (async function* () {
    const handle = await open(file);
    try {
      for (let offset = 0; ;) {
        const buffer = Buffer.alloc(Math.min(PART_BYTES, Math.max(1, facts.size - offset)));
        const { bytesRead } = await handle.read(buffer, 0, buffer.length, offset);
        const last = bytesRead === 0 || offset + bytesRead >= facts.size;
        yield { data: buffer.subarray(0, bytesRead), offset, last, totalBytes: facts.size };
        if (last) return;
        offset += bytesRead;
      }
    } finally {
      await handle.close();
    }
  })();
}

async function* readStdin({ stdin }: CliContext): AsyncGenerator<Part> {
  const chunks: Buffer[] = [];
  let totalBytes = 0;
  for await (const chunk of stdin as AsyncIterable<Buffer | string>) {
    chunks.push(Buffer.from(chunk));
    totalBytes += chunk.length;
    if (totalBytes > MAX_STDIN_BYTES)
      throw new CliError(ExitCode.USAGE, "standard input has more than 50 MiB");
  }
  const all = Buffer.concat(chunks);
  for (let offset = 0; ; offset += PART_BYTES) {
    const last = offset + PART_BYTES >= all.length;
    yield { data: all.subarray(offset, offset + PART_BYTES), offset, last, totalBytes };
    if (last) return;
  }
}

/** Shows how far it is until it is ready or has failed. Ctrl-C cancels it. */
async function follow(added: SourceDocument, context: CliContext): Promise<SourceDocument> {
  const { client, terminal, signal, interrupts } = context;
  const { documentId } = added;
  const cancelling = new AbortController();
  const release = interrupts.take(() => cancelling.abort());
  try {
    for (let document = added; ;) {
      if (document.status !== DocumentStatus.INDEXING) return document;
      const done = percent(Number(document.processedBytes), Number(document.sizeBytes));
      terminal.passing(`indexing ${oneLine(document.title)}: ${done}`);
      await systemClock.sleep(LOOK_MS, AbortSignal.any([signal, cancelling.signal])).catch(() => undefined);
      signal.throwIfAborted();
      const answer = cancelling.signal.aborted
        ? await client.documents.cancelDocument({ documentId }, { signal })
        : await client.documents.getDocument({ documentId, partToken: BEYOND }, { signal });
      document = answer.document!;
    }
  } finally {
    release();
  }
}

/** A position behind every text: of the document alone is asked. */
const BEYOND = "2000000000";

export async function listDocuments(
  options: { readonly limit: number; readonly query?: string },
  context: CliContext,
): Promise<ExitCode> {
  const query = options.query ?? "";
  const documents = await pages(
    (pageToken) =>
      context.client.documents.listDocuments(
        { pageToken, pageSize: Math.min(PAGE_SIZE, options.limit), query },
        context,
      ),
    (page) => page.documents,
    options.limit,
  );
  const none = "no documents: `turnwire documents add FILE` adds one";
  return printRows(SourceDocumentSchema, documents, none, context, rowOf);
}

/** Prints a document's text, from a position on. */
export async function getDocument(
  documentId: string,
  options: { readonly from: number },
  context: CliContext,
): Promise<ExitCode> {
  const { client, terminal, json } = context;
  let partToken = String(options.from);
  for (let first = true; ; first = false) {
    const { document, text, nextPartToken } = await client.documents.getDocument(
      { documentId, partToken },
      context,
    );
    if (json) {
      await terminal.line(toJsonString(SourceDocumentSchema, document!));
      return ExitCode.OK;
    }
    if (first) await terminal.aside(rowOf(document!).join("  "));
    await terminal.text(text);
    if (nextPartToken === "" || nextPartToken === partToken) break;
    partToken = nextPartToken;
  }
  await terminal.freshLine();
  return ExitCode.OK;
}

export async function cancelDocument(documentId: string, context: CliContext): Promise<ExitCode> {
  const { document } = await context.client.documents.cancelDocument({ documentId }, context);
  await printDocument(document!, context);
  return ExitCode.OK;
}

export async function deleteDocument(documentId: string, context: CliContext): Promise<ExitCode> {
  await context.client.documents.deleteDocument({ documentId }, context);
  if (!context.json) await context.terminal.line(`deleted ${documentId}`);
  return ExitCode.OK;
}

async function printDocument(document: SourceDocument, { terminal, json }: CliContext): Promise<void> {
  if (json) return terminal.line(toJsonString(SourceDocumentSchema, document));
  await terminal.line(rowOf(document).filter(Boolean).join("  "));
}

function rowOf(document: SourceDocument): string[] {
  return [document.documentId, time(document.createTime), stateOf(document), oneLine(document.title)];
}

function stateOf(document: SourceDocument): string {
  switch (document.status) {
    case DocumentStatus.READY:
      return `ready, ${document.chunks} ${document.chunks === 1 ? "passage" : "passages"}`;
    case DocumentStatus.INDEXING:
      return `indexing, ${percent(Number(document.processedBytes), Number(document.sizeBytes))}`;
    case DocumentStatus.FAILED:
      return `failed: ${oneLine(document.error)}`;
    case DocumentStatus.CANCELLED:
      return "cancelled";
    default:
      return "";
  }
}

function percent(part: number, whole: number): string {
  return `${whole > 0 ? Math.floor((100 * Math.min(part, whole)) / whole) : 0} %`;
}
