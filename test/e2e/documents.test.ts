/** Documents through the service as users run it: added by PUT, by parts and from the command line, asked about, cited. */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { createClient, type Client } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DocumentService, FileService } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { DocumentStatus, type SourceDocument } from "../../gen/turnwire/chat/v1/types_pb.js";
import { TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { fold } from "../../src/turn/fold.js";
import { buildCli, CliProcess, type BuiltCli } from "../support/cli-process.js";
import { upload } from "../support/documents-fixture.js";
import { chatClient, expectGrammar, readWhole, type ChatClient } from "../support/e2e-fixture.js";
import {
  makeDataDir,
  removeDataDir,
  startTurnwire,
  type TurnwireProcess,
} from "../support/turnwire-process.js";
import { makePdf } from "../support/web-pages.js";

interface Server {
  readonly process: TurnwireProcess;
  readonly chat: ChatClient;
  readonly documents: Client<typeof DocumentService>;
  readonly files: Client<typeof FileService>;
}

const dataDir = makeDataDir();
let server: Server;
let cli: BuiltCli;

async function start(): Promise<Server> {
  const process = await startTurnwire({ dataDir });
  const transport = createConnectTransport({ baseUrl: process.httpUrl, httpVersion: "2" });
  return {
    process,
    chat: chatClient(process),
    documents: createClient(DocumentService, transport),
    files: createClient(FileService, transport),
  };
}

beforeAll(async () => {
  [server, cli] = await Promise.all([start(), buildCli()]);
}, 90_000);

afterAll(async () => {
  await server.process.stop();
  await cli.remove();
  removeDataDir(dataDir);
});

/** Waits until it is indexed, as the page does: by the events of Watch. */
async function whenSettled(documentId: string): Promise<SourceDocument> {
  const stop = new AbortController();
  try {
    for await (const { events } of server.chat.watch({ allSessionEvents: true }, { signal: stop.signal })) {
      for (const { event } of events)
        if (
          event.case === "document" &&
          event.value.documentId === documentId &&
          event.value.status !== DocumentStatus.INDEXING
        )
          return event.value;
      const { document } = await server.documents.getDocument({ documentId }); // it may have been ready before
      if (document!.status !== DocumentStatus.INDEXING) return document!;
    }
    throw new Error("the watch ended");
  } finally {
    stop.abort();
  }
}

async function ask(text: string, options = {}) {
  const { receipt } = await server.chat.startTurn({ text, options });
  const packets = await readWhole(server.chat, receipt!.turnId);
  expectGrammar(packets);
  const state = fold(packets);
  expect(state.stop?.outcome).toBe(TurnOutcome.COMPLETED);
  return { packets, lane: state.lanes[0]! };
}

const PDF = makePdf(["Grey herons wade in shallow water.", "White storks nest on chimneys."], "Waders");

describe("documents - a first conversation without any key", () => {
  test("a PDF by PUT and a text by parts are found, quoted and cited with links to their places", async () => {
    const put = await fetch(`${server.process.httpUrl}/files/waders-1?name=waders.pdf`, {
      method: "PUT",
      body: new Uint8Array(PDF),
    });
    const { fileId } = (await put.json()) as { fileId: string };
    const pdf = await server.documents.addDocument({
      source: { case: "fileId", value: fileId },
      tags: ["birds"],
    });
    const notes = await upload(server.files, Buffer.from("# Notes\n\nHerons were seen on Monday.\n"), {
      name: "notes.md",
      partBytes: 7,
    });
    const text = await server.documents.addDocument({ source: { case: "fileId", value: notes } });
    const pdfId = pdf.document!.documentId;
    expect(await whenSettled(pdfId)).toMatchObject({ status: DocumentStatus.READY, chunks: 1 });
    expect((await whenSettled(text.document!.documentId)).mediaType).toBe("text/markdown");

    const { packets, lane } = await ask("What do my documents say about herons?");
    const kinds = packets.map(({ payload }) => payload.case!);
    const searches = kinds.filter((kind) => kind.startsWith("searchTool"));
    expect(searches).toEqual(["searchToolStart", "searchToolQueriesDelta", "searchToolDocumentsDelta"]);
    expect(lane.text).toContain("Grey herons wade in shallow water.");
    expect(lane.text).toContain("Herons were seen on Monday.");
    const place = new RegExp(`\\[\\[(\\d+)\\]\\]\\(/#/documents/${pdfId}\\?at=(\\d+)\\)`).exec(lane.text);
    expect(place).not.toBeNull();
    const citation = lane.citations.find(({ number }) => number === Number(place![1]));
    expect(citation?.document).toMatchObject({ page: 1, title: "waders.pdf" });
    const there = await server.documents.getDocument({ documentId: pdfId, partToken: place![2]! });
    expect(there.text).toContain("Grey herons");
  });

  test("filters of a send reach the search; documents that are gone are not found", async () => {
    const tagged = await ask("What do my documents say about herons?", {
      searchFilters: { tags: ["birds"] },
    });
    expect(tagged.lane.text).toContain("Grey herons");
    expect(tagged.lane.text).not.toContain("Monday");
    const { documents } = await server.documents.listDocuments({});
    for (const { documentId } of documents) await server.documents.deleteDocument({ documentId });
    const { lane } = await ask("What do my documents say about herons?");
    expect(lane.text).toContain("has no documents");
  });
});

describe("documents - the command line", () => {
  const run = (args: readonly string[], stdin?: string) => {
    const command = new CliProcess(cli, ["--url", server.process.httpUrl, "documents", ...args]);
    if (stdin !== undefined) command.endInput(stdin);
    return command.ended;
  };

  test("add, list, get from a place, delete; a failure is exit code 1 and says why", async () => {
    const file = path.join(dataDir, "waders.pdf");
    writeFileSync(file, PDF);
    const added = await run(["add", file, "--title", "My waders", "--tag", "birds"]);
    expect([added.code, added.stderr]).toEqual([0, ""]);
    expect(added.stdout).toMatch(/ready, 1 passage {2}My waders\n$/);
    const id = added.stdout.split(" ")[0]!;
    const list = await run(["list", "--query", "waders"]);
    expect(list.stdout).toBe(added.stdout);
    const got = await run(["get", id, "--from", "14"]);
    expect(got.stdout).toContain("Grey herons");
    const zip = path.join(dataDir, "a.docx");
    writeFileSync(zip, "PK\u0003\u0004");
    const failed = await run(["add", zip]);
    expect(failed).toMatchObject({ code: 1 });
    expect(failed.stdout).toContain("failed: A file of type application/zip cannot be read.");
    const piped = await run(["add", "-", "--title", "Piped"], "From standard input.");
    expect(piped.stdout).toMatch(/ready, 1 passage {2}Piped\n$/);
    const folder = path.join(dataDir, "notes");
    mkdirSync(path.join(folder, "deep", ".hidden"), { recursive: true });
    for (const name of ["a.md", "deep/b.txt", "deep/.hidden/c.md", "image.png"])
      writeFileSync(path.join(folder, name), `# Note ${name}`);
    const notes = await run(["add", folder]);
    expect(notes.code).toBe(0);
    expect(notes.stdout.trim().split("\n")).toEqual([
      expect.stringMatching(/ready.*a\.md$/),
      expect.stringMatching(/ready.*b\.txt$/),
    ]);
    mkdirSync(path.join(folder, "none"));
    expect((await run(["add", path.join(folder, "none")])).code).toBe(2);
    expect((await run(["delete", id])).stdout).toBe(`deleted ${id}\n`);
    expect((await run(["get", id])).code).toBe(3);
    expect((await run(["add", path.join(dataDir, "none.txt")])).code).toBe(2);
  });
});

test("documents - killed in the middle of indexing, ready soon after the restart", async () => {
  const data = Buffer.from(
    "Many words of a document that takes a while to be indexed, and is interrupted. ".repeat(100_000),
  );
  const fileId = await upload(server.files, data, { name: "large.txt" });
  const { document } = await server.documents.addDocument({ source: { case: "fileId", value: fileId } });
  const documentId = document!.documentId;
  for (;;) {
    const now = (await server.documents.getDocument({ documentId })).document!;
    expect(now.status).toBe(DocumentStatus.INDEXING);
    if (now.chunks > 0) break;
  }
  await server.process.kill9();
  server = await start();
  const ready = await whenSettled(documentId);
  expect(ready).toMatchObject({ status: DocumentStatus.READY, processedBytes: String(data.length) });
  let chars = 0;
  for (let partToken = ""; ;) {
    const part = await server.documents.getDocument({ documentId, partToken });
    chars += part.text.length;
    partToken = part.nextPartToken;
    if (partToken === "") break;
  }
  expect(chars).toBe(data.length);
}, 120_000);
