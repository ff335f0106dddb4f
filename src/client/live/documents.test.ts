import { create } from "@bufbuild/protobuf";
import {
  Code,
  ConnectError,
  createClient,
  createRouterTransport,
  type ServiceImpl,
} from "@connectrpc/connect";
import { describe, expect, it, vi } from "vitest";
import {
  DocumentService,
  FileService,
  ListDocumentsResponseSchema,
  WatchResponseSchema,
  type SessionEvent,
} from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import {
  DocumentStatus,
  SourceDocumentSchema,
  type SourceDocument,
} from "../../../gen/turnwire/chat/v1/types_pb.js";
import { deferred } from "../../lib/signals.js";
import { canRetry, Documents } from "./documents.js";
import { HubLink } from "./hub-link.js";

interface Services {
  readonly documents?: Partial<ServiceImpl<typeof DocumentService>>;
  readonly files?: Partial<ServiceImpl<typeof FileService>>;
}

function open({ documents = {}, files = {} }: Services) {
  const transport = createRouterTransport((router) => {
    router.service(DocumentService, documents);
    router.service(FileService, files);
  });
  const link = new HubLink({ tabId: "tab", lock: "", token: "", post: () => undefined });
  const all = new Documents({
    documents: createClient(DocumentService, transport),
    files: createClient(FileService, transport),
    link,
  });
  const receive = (event: SessionEvent["event"]): void =>
    link.receive({ kind: "message", message: create(WatchResponseSchema, { events: [{ event }] }) });
  const event = (document: SourceDocument): void => receive({ case: "document", value: document });
  const status = (documentId: string) =>
    all.view.get().documents.find((each) => each.documentId === documentId)?.status;
  return { all, receive, event, status };
}

function document(
  second: number,
  change: { documentId?: string; status?: DocumentStatus } = {},
): SourceDocument {
  return create(SourceDocumentSchema, {
    documentId: `d${second}`,
    status: DocumentStatus.READY,
    createTime: { seconds: BigInt(second) },
    ...change,
  });
}

const file = (name: string, size: number) => ({
  name,
  type: "text/plain",
  size,
  slice: (start: number, end: number) => new Blob([new Uint8Array(end - start)]),
});

describe("documents", () => {
  it("D1 keeps a document that was added here, however many others are newer", async () => {
    const page = Array.from({ length: 50 }, (_, i) => document(1_000 - i));
    const { all, status } = open({
      documents: {
        addDocument: () => ({ document: document(7, { status: DocumentStatus.INDEXING }) }),
        listDocuments: () => create(ListDocumentsResponseSchema, { documents: page, nextPageToken: "more" }),
        getDocument: () => ({ document: document(7) }),
      },
    });
    await all.reload();
    all.addText("old", "text");
    await vi.waitFor(() => expect(status("d7")).toBe(DocumentStatus.INDEXING));
    await all.reload();
    expect(status("d7")).toBe(DocumentStatus.INDEXING);
    await all.follow();
    expect(status("d7")).toBe(DocumentStatus.READY);
    expect(all.view.get().documents.length).toBe(51);
  });

  it("D2 does not go back from ready to indexing when an older answer arrives later", async () => {
    const reply = deferred<void>();
    const { all, event, status } = open({
      documents: {
        addDocument: async () => {
          await reply.promise;
          return { document: document(1, { status: DocumentStatus.INDEXING }) };
        },
      },
    });
    all.addText("one", "text");
    event(document(1));
    reply.resolve();
    await vi.waitFor(() => expect(all.view.get().incoming[0]?.documentId).toBe("d1"));
    expect(status("d1")).toBe(DocumentStatus.READY);
  });

  it("D1 forgets what is gone, and what was deleted here does not come back with a late answer", async () => {
    const late = deferred<void>();
    const { all, event, status } = open({
      documents: {
        deleteDocument: () => ({}),
        getDocument: async ({ documentId }) => {
          if (documentId === "d1") throw new ConnectError("gone", Code.NotFound);
          await late.promise;
          return { document: document(2) };
        },
      },
    });
    event(document(1, { status: DocumentStatus.INDEXING }));
    event(document(2, { status: DocumentStatus.INDEXING }));
    const following = all.follow();
    await all.delete("d2");
    late.resolve();
    await following;
    expect([status("d1"), status("d2")]).toEqual([undefined, undefined]);
  });

  it("adds anew what failed, from where it came, and deletes the failed one once that is accepted", async () => {
    const calls: string[] = [];
    const { all, event } = open({
      documents: {
        addDocument: ({ source, title, tags }) => {
          calls.push(`add ${String(source.value)} ${title} ${tags.join()}`);
          return { document: document(9, { status: DocumentStatus.INDEXING }) };
        },
        deleteDocument: ({ documentId }) => {
          calls.push(`delete ${documentId}`);
          return {};
        },
      },
    });
    const failed = create(SourceDocumentSchema, {
      ...document(3, { status: DocumentStatus.FAILED }),
      ...{ title: "Report", tags: ["a"], fileId: "f1" },
    });
    event(failed);
    expect(canRetry(failed)).toBe(true);
    all.retry(failed);
    await vi.waitFor(() => expect(calls).toEqual(["add f1 Report a", "delete d3"]));
    await vi.waitFor(() => expect(all.view.get().documents.map((each) => each.documentId)).toEqual(["d9"]));
    expect(canRetry(document(4, { status: DocumentStatus.FAILED }))).toBe(false);
    expect(canRetry(create(SourceDocumentSchema, { ...failed, status: DocumentStatus.READY }))).toBe(false);
  });

  it("D1 forgets what another client deletes", () => {
    const { receive, event, status } = open({});
    event(document(1));
    event(document(2));
    receive({ case: "documentDeleted", value: "d1" });
    expect([status("d1"), status("d2")]).toEqual([undefined, DocumentStatus.READY]);
  });

  it("D3 uploads three at a time, and sends a part that was lost again with the same upload_id", async () => {
    const parts: string[] = [];
    const gates = new Map<string, () => void>();
    const { all } = open({
      files: {
        uploadFile: async ({ uploadId, offset, last, name }) => {
          parts.push(`${uploadId} ${offset}`);
          if (parts.length === 1) throw new ConnectError("lost", Code.Unavailable);
          if (last) await new Promise<void>((resolve) => gates.set(uploadId, resolve));
          return { file: last ? { fileId: `f-${name}` } : undefined };
        },
      },
      documents: { addDocument: ({ requestId }) => ({ document: document(1, { documentId: requestId }) }) },
    });
    const sizeBytes = 1024 * 1024 + 1;
    for (let i = 0; i < 7; i += 1) all.addFile(file(`${i}.txt`, sizeBytes));
    const done = () => all.view.get().incoming.filter(({ documentId }) => documentId !== "").length;
    await vi.waitFor(() => expect(gates.size).toBe(3));
    expect(new Set(parts.map((part) => part.split(" ")[0])).size).toBe(3);
    expect(parts.filter((part) => part === parts[0])).toEqual([parts[0], parts[0]]);
    while (done() < 7) {
      for (const [id, go] of gates) {
        gates.delete(id);
        go();
      }
      await new Promise(setImmediate);
    }
    expect(all.view.get().incoming.every(({ error }) => error === undefined)).toBe(true);
    expect(parts.length).toBe(15); // two parts of each, and the lost one
  });
});
