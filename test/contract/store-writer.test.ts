import pg from "pg";
import { describe, expect, it } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { newId } from "../../src/lib/ids.js";
import type { Checkpoint } from "../../src/store/store.js";
import { runSql, usePostgres } from "../support/postgres.js";
import { accept, ALICE, collect, commitOf, runningTurn, useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);

const INPUT: Checkpoint = { kind: "input", modelIndex: 0, data: Buffer.from("input") };

function randomBytes(length: number, seed: number): Buffer {
  return Buffer.from(Array.from({ length }, (_, at) => (at * 31 + seed * 7 + (at >> 8)) & 0xff));
}

function fileOf(turnId: string, size: number): Parameters<typeof stores.store.saveFile>[2] {
  return {
    fileId: newId(),
    name: "page.txt",
    mediaType: "text/plain",
    sizeBytes: BigInt(size),
    sha256: "abc",
    turnId,
    createTime: new Date(1_700_000_000_123),
  };
}

/** A connection that holds a transaction open, as a writer in the middle of something. */
async function withConnection<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: postgres.url });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** Resolves when somebody waits for a lock that `client` holds. */
async function someoneWaitsFor(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ pid: number }>("select pg_backend_pid() as pid");
  await expect
    .poll(
      () =>
        runSql(postgres.url, "select 1 from pg_stat_activity where $1 = any (pg_blocking_pids(pid))", [
          rows[0]!.pid,
        ]),
      { timeout: 4_000 },
    )
    .not.toEqual([]);
}

describe("ownership (I5)", () => {
  it("takeTurn - compare and set; of ten takers at once one wins", async () => {
    const { turn } = await accept(stores.store);
    const taken = await Promise.all(
      Array.from({ length: 10 }, (_, at) => stores.store.takeTurn(turn.turnId, 0, 1, `taker-${at}`)),
    );
    expect(taken.filter(Boolean).length).toBe(1);
    const row = (await stores.store.loadTurn(turn.turnId))!;
    expect(row).toMatchObject({ epoch: 1, owner: `taker-${taken.indexOf(true)}` });
    // Asked again after a lost answer: still mine; and of nobody else.
    expect(await stores.store.takeTurn(turn.turnId, 0, 1, row.owner)).toBe(true);
    expect(await stores.store.takeTurn(turn.turnId, 0, 2, "late")).toBe(false);
    expect(await stores.store.takeTurn(newId(), 0, 1, "x")).toBe(false);
    await expect(stores.store.takeTurn(turn.turnId, 1, 1, "x")).rejects.toThrow(/never go back/);
  });

  it("a zombie's rows after a takeover - all refused, nothing written", async () => {
    const { turn } = await runningTurn(stores.store);
    await stores.store.takeTurn(turn.turnId, 1, 2, "new-owner");
    expect(await stores.store.saveCheckpoint(turn.turnId, 1, INPUT)).toBe(false);
    expect(
      await stores.store.saveArchivePart(turn.turnId, 1, {
        firstSeq: 1,
        lastSeq: 5,
        batch: Buffer.from("z"),
      }),
    ).toBe(false);
    const file = fileOf(turn.turnId, 3);
    expect(await stores.store.saveFile(ALICE, 1, file, Buffer.from("abc"))).toBe(false);
    expect(await stores.store.commitTurn(commitOf(turn))).toBe("fenced");
    expect(await stores.store.listCheckpoints(turn.turnId)).toEqual([]);
    expect(await collect(stores.store.readArchive(turn.turnId, 0))).toEqual([]);
    expect(await stores.store.getFile(ALICE, file.fileId)).toBeUndefined();
    expect(await stores.store.loadTurn(turn.turnId)).toMatchObject({
      phase: "running",
      epoch: 2,
      owner: "new-owner",
      terminalSeq: 0,
    });
    expect(await stores.store.commitTurn(commitOf({ ...turn, epoch: 2 }))).toBe("committed");
  });

  it("a takeover in the middle of a transaction - a zombie that waits behind it writes nothing", async () => {
    const { turn } = await runningTurn(stores.store);
    await withConnection(async (taker) => {
      await taker.query("begin");
      await taker.query("update turnwire.turns set epoch = 2, owner = 'new' where turn_id = $1", [
        turn.turnId,
      ]);
      const zombies = Promise.all([
        stores.store.saveCheckpoint(turn.turnId, 1, INPUT),
        stores.store.saveArchivePart(turn.turnId, 1, { firstSeq: 1, lastSeq: 5, batch: Buffer.from("z") }),
        stores.store.saveFile(ALICE, 1, fileOf(turn.turnId, 3), Buffer.from("abc")),
        stores.store.commitTurn(commitOf(turn)),
      ]);
      await someoneWaitsFor(taker);
      await taker.query("commit");
      expect(await zombies).toEqual([false, false, false, "fenced"]);
    });
    expect(await stores.store.listCheckpoints(turn.turnId)).toEqual([]);
    expect(await collect(stores.store.readArchive(turn.turnId, 0))).toEqual([]);
  });

  it("a commit waits for a writer in the middle of its row, and the row is kept", async () => {
    const { turn } = await runningTurn(stores.store);
    await withConnection(async (writer) => {
      await writer.query("begin");
      await writer.query(
        "select 1 from turnwire.turns where turn_id = $1 and epoch = 1 and phase = 1 for share",
        [turn.turnId],
      );
      const commit = stores.store.commitTurn(commitOf(turn));
      await someoneWaitsFor(writer);
      expect(await stores.store.loadTurn(turn.turnId)).toMatchObject({ phase: "running" });
      await writer.query("commit");
      expect(await commit).toBe("committed");
    });
    expect(await stores.store.saveCheckpoint(turn.turnId, 1, INPUT)).toBe(false);
  });

  it("a commit races a takeover - exactly one of them has the turn", async () => {
    for (let round = 0; round < 20; round++) {
      const { turn } = await runningTurn(stores.store);
      const [committed, taken] = await Promise.all([
        stores.store.commitTurn(commitOf(turn)),
        stores.store.takeTurn(turn.turnId, 1, 2, "new"),
      ]);
      const row = (await stores.store.loadTurn(turn.turnId))!;
      expect(row.phase === "committed").toBe(committed === "committed");
      expect(taken).toBe(true); // a committed turn is taken too, to publish its terminal
      expect(row.epoch).toBe(2);
    }
  });
});

describe("checkpoints", () => {
  it("are read back in the order in which they were stored; stored twice they are there once", async () => {
    const { turn } = await runningTurn(stores.store);
    const checkpoints: Checkpoint[] = [
      INPUT,
      { kind: "input", modelIndex: 1, data: Buffer.from("other lane") },
      { kind: "cycle", modelIndex: 0, cycle: 0, data: Buffer.from("c0") },
      { kind: "dispatching", modelIndex: 0, cycle: 0, callId: "call-1", data: Buffer.from("d") },
      { kind: "result", modelIndex: 0, cycle: 0, callId: "call-1", data: Buffer.from([0, 255]) },
      { kind: "cycle", modelIndex: 0, cycle: 1, data: new Uint8Array() },
    ];
    for (const checkpoint of checkpoints) {
      expect(await stores.store.saveCheckpoint(turn.turnId, 1, checkpoint)).toBe(true);
      expect(await stores.store.saveCheckpoint(turn.turnId, 1, checkpoint)).toBe(true);
    }
    const read = await stores.store.listCheckpoints(turn.turnId);
    expect(read).toEqual(
      checkpoints.map((checkpoint) => ({ ...checkpoint, data: new Uint8Array(checkpoint.data) })),
    );
  });
});

describe("archive", () => {
  it("parts are read back byte for byte, from any seq, the last one with the commit", async () => {
    const { turn } = await runningTurn(stores.store);
    const parts = [
      { firstSeq: 1, lastSeq: 10, batch: randomBytes(256 * 1024, 1) },
      { firstSeq: 11, lastSeq: 11, batch: randomBytes(1, 2) },
      { firstSeq: 12, lastSeq: 60, batch: randomBytes(70_000, 3) },
    ];
    for (const part of parts.slice(0, 2))
      expect(await stores.store.saveArchivePart(turn.turnId, 1, part)).toBe(true);
    expect((await stores.store.loadTurn(turn.turnId))!.archivedSeq).toBe(11);
    expect(await stores.store.commitTurn(commitOf(turn, { archive: parts[2]! }))).toBe("committed");
    for (const [afterSeq, from] of [
      [0, 0],
      [9, 0],
      [10, 1],
      [11, 2],
      [59, 2],
      [60, 3],
    ] as const) {
      const read = await collect(stores.store.readArchive(turn.turnId, afterSeq));
      expect(read.map((part) => [part.firstSeq, part.lastSeq])).toEqual(
        parts.slice(from).map((part) => [part.firstSeq, part.lastSeq]),
      );
      for (const [at, part] of read.entries()) expect(parts[from + at]!.batch.equals(part.batch)).toBe(true);
    }
  });

  it("a part that leaves a gap or overlaps is refused; the same part again is not stored twice", async () => {
    const { turn } = await runningTurn(stores.store);
    const part = { firstSeq: 1, lastSeq: 10, batch: Buffer.from("p") };
    expect(await stores.store.saveArchivePart(turn.turnId, 1, part)).toBe(true);
    expect(await stores.store.saveArchivePart(turn.turnId, 1, part)).toBe(true);
    for (const wrong of [
      { ...part, firstSeq: 12, lastSeq: 13 },
      { ...part, firstSeq: 10, lastSeq: 13 },
      { ...part, batch: Buffer.from("q") },
    ]) {
      await expect(stores.store.saveArchivePart(turn.turnId, 1, wrong)).rejects.toMatchObject({
        code: ErrorCode.INTERNAL,
      });
    }
    await expect(
      stores.store.commitTurn(commitOf(turn, { archive: { ...part, firstSeq: 12, lastSeq: 13 } })),
    ).rejects.toMatchObject({ code: ErrorCode.INTERNAL });
    expect(await stores.store.loadTurn(turn.turnId)).toMatchObject({ phase: "running", archivedSeq: 10 });
  });
});

describe("commitTurn", () => {
  it("stores the final state of every lane, and the terminal's exact bytes", async () => {
    const lanes = [0, 1].map((modelIndex) => ({ modelIndex, modelId: `m${modelIndex}`, messageId: newId() }));
    const { turn } = await runningTurn(stores.store, { lanes });
    const base = commitOf(turn);
    const document = Buffer.from("document");
    const input = commitOf(turn, {
      outcome: 2,
      stopReason: 3,
      terminalBatch: randomBytes(500, 9),
      lanes: base.lanes.map((lane) => ({
        ...lane,
        text: "with \0 and \u{1F600}",
        toolCalls: [
          {
            callId: "",
            modelIndex: lane.modelIndex,
            cycle: 0,
            toolId: "clock\0",
            argumentsJson: '{"a":"\0"}',
            status: 1,
            modelText: "nul \0 here",
          },
          {
            callId: "",
            modelIndex: lane.modelIndex,
            cycle: 1,
            toolId: "clock",
            argumentsJson: "",
            status: 2,
            modelText: "",
          },
        ],
        citations: [1, 2, 2].map((number) => ({ number, document, documentId: "doc-1" })),
      })),
    });
    expect(await stores.store.commitTurn(input)).toBe("committed");
    const row = (await stores.store.loadTurn(turn.turnId))!;
    expect(row).toMatchObject({
      phase: "committed",
      outcome: 2,
      stopReason: 3,
      terminalSeq: 61,
      endTime: input.endTime,
    });
    expect(Buffer.from(row.terminalBatch!).equals(input.terminalBatch)).toBe(true);
    expect(
      row.lanes.map((lane) => [lane.modelId, lane.outcome, Buffer.from(lane.usage!).toString()]),
    ).toEqual([
      ["m0-really-used", 1, "usage 0"],
      ["m1-really-used", 1, "usage 1"],
    ]);
    const [, answer] = await stores.store.branch(ALICE, lanes[1]!.messageId, 2);
    expect(Buffer.from(answer!.answer!).toString()).toBe("answer 1");
    const rowsOf = (table: string, columns: string): Promise<unknown[]> =>
      runSql(
        postgres.url,
        `select ${columns} from turnwire.${table} where turn_id = $1 and tenant_id = 'acme' and user_id = 'alice' order by 1, 2`,
        [turn.turnId],
      );
    const calls = [
      { ordinal: 0, arguments_json: Buffer.from('{"a":"\0"}'), model_text: Buffer.from("nul \0 here") },
      { ordinal: 1, arguments_json: Buffer.from(""), model_text: Buffer.from("") },
    ];
    expect(await rowsOf("tool_calls", "model_index, ordinal, arguments_json, model_text")).toEqual(
      [0, 1].flatMap((model_index) => calls.map((call) => ({ model_index, ...call }))),
    );
    expect(await rowsOf("documents", "document_id, document")).toEqual([{ document_id: "doc-1", document }]);
    expect((await rowsOf("citations", "model_index, number")).length).toBe(4);
    expect(await rowsOf("usage", "model_index, model_id")).toEqual([
      { model_index: 0, model_id: "m0-really-used" },
      { model_index: 1, model_id: "m1-really-used" },
    ]);
  });

  it("again with the same bytes - committed, and nothing is stored twice; with others - fenced", async () => {
    const { turn, session } = await runningTurn(stores.store);
    const input = commitOf(turn, { archive: { firstSeq: 1, lastSeq: 60, batch: Buffer.from("all") } });
    const outcomes = await Promise.all(Array.from({ length: 5 }, () => stores.store.commitTurn(input)));
    expect(outcomes).toEqual(Array.from({ length: 5 }, () => "committed"));
    expect((await stores.store.getSession(ALICE, session.sessionId))!.revision).toBe(session.revision + 1n);
    expect(await stores.store.commitTurn({ ...input, terminalBatch: Buffer.from("others") })).toBe("fenced");
    expect(await stores.store.commitTurn({ ...input, terminalSeq: 62 })).toBe("fenced");
    expect(await stores.store.commitTurn({ ...input, epoch: 2 })).toBe("fenced");
    await stores.store.markClosed(turn.turnId);
    await stores.store.markClosed(turn.turnId);
    expect(await stores.store.commitTurn(input)).toBe("committed");
    expect(await stores.store.loadTurn(turn.turnId)).toMatchObject({ phase: "closed" });
    expect(await stores.store.takeTurn(turn.turnId, 1, 2, "late")).toBe(false);
  });

  it("markClosed closes no turn that is not committed", async () => {
    const { turn } = await runningTurn(stores.store);
    await stores.store.markClosed(turn.turnId);
    expect(await stores.store.loadTurn(turn.turnId)).toMatchObject({ phase: "running" });
  });

  it("with 2,000 tool calls and an answer of 8 MiB", async () => {
    const { turn } = await runningTurn(stores.store);
    const [lane] = commitOf(turn).lanes;
    const toolCalls = Array.from({ length: 2_000 }, (_, at) => ({
      callId: `c${at}`,
      modelIndex: 0,
      cycle: at,
      toolId: "t",
      argumentsJson: "{}",
      status: 1,
      modelText: "r",
    }));
    const answer = randomBytes(8 << 20, 5);
    expect(
      await stores.store.commitTurn(
        commitOf(turn, { lanes: [{ ...lane!, toolCalls, answer, text: "x".repeat(1 << 20) }] }),
      ),
    ).toBe("committed");
    const [, message] = await stores.store.branch(ALICE, turn.lanes[0]!.messageId, 2);
    expect(answer.equals(message!.answer!)).toBe(true);
    expect(
      await runSql(postgres.url, "select count(*)::int as n from turnwire.tool_calls where turn_id = $1", [
        turn.turnId,
      ]),
    ).toEqual([{ n: 2_000 }]);
  });
});

describe("files", () => {
  it.each([0, 1, 256 * 1024, 256 * 1024 + 1, 700_000])(
    "%i bytes are read back byte for byte, from any offset, in parts of 256 KiB at most",
    async (size) => {
      const { turn } = await runningTurn(stores.store);
      const data = randomBytes(size, 4);
      const file = fileOf(turn.turnId, size);
      expect(await stores.store.saveFile(ALICE, 1, file, data)).toBe(true);
      expect(await stores.store.saveFile(ALICE, 1, file, data)).toBe(true);
      expect(await stores.store.getFile(ALICE, file.fileId)).toEqual(file);
      for (const offset of new Set([0, 1, 256 * 1024 - 1, 256 * 1024, size, size + 10])) {
        const parts = await collect(stores.store.readFile(ALICE, file.fileId, BigInt(offset)));
        expect(Math.max(0, ...parts.map((part) => part.length))).toBeLessThanOrEqual(256 * 1024);
        expect(Buffer.concat(parts).equals(data.subarray(offset))).toBe(true);
      }
      const negative = stores.store.readFile(ALICE, file.fileId, -1n)[Symbol.asyncIterator]().next();
      await expect(negative).rejects.toMatchObject({ code: ErrorCode.INVALID_ARGUMENT });
    },
  );
});
