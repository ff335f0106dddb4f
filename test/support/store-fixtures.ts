/** What the store's suites are made of: a store on a real Postgres, sends, turns in every phase. */
import { afterAll, beforeAll } from "vitest";
import { newId } from "../../src/lib/ids.js";
import { silentLogger } from "../../src/lib/log.js";
import type { Principal } from "../../src/lib/rpc/service-binding.js";
import { connectPgStore } from "../../src/store/pg-store.js";
import type {
  AcceptInput,
  AcceptOutcome,
  CommitInput,
  SessionRow,
  Store,
  TurnRow,
} from "../../src/store/store.js";
import type { TestPostgres } from "./postgres.js";

export const ALICE: Principal = { tenantId: "acme", userId: "alice", admin: false };
/** Same tenant, another user; same user name, another tenant; and an admin of that tenant. */
export const STRANGERS: readonly Principal[] = [
  { tenantId: "acme", userId: "bob", admin: false },
  { tenantId: "other", userId: "alice", admin: false },
  { tenantId: "other", userId: "alice", admin: true },
];
export const FIRST_PAGE = { size: 0, token: "" };

/** A store on the suite's database, closed at its end. */
export function useStore(postgres: TestPostgres): { readonly store: Store } {
  let store: Store | undefined;
  beforeAll(async () => {
    store = await connectPgStore({ connectionString: postgres.url, logger: silentLogger });
  });
  afterAll(async () => {
    await store?.close();
  });
  return {
    get store() {
      return store!;
    },
  };
}

export function send(changes: Partial<AcceptInput> = {}): AcceptInput {
  return {
    principal: ALICE,
    requestId: newId(),
    requestHash: "hash",
    sessionId: "",
    newSession: { sessionId: newId(), settings: Buffer.from("settings"), title: "First words" },
    parentMessageId: undefined,
    turnId: newId(),
    userMessageId: newId(),
    userInput: Buffer.from("hello"),
    searchText: "hello",
    lanes: [{ modelIndex: 0, modelId: "demo", messageId: newId() }],
    partition: 3,
    logId: "log",
    owner: "process-1",
    plan: Buffer.from([0, 1, 2, 255]),
    ...changes,
  };
}

export type Accepted = Extract<AcceptOutcome, { kind: "accepted" }>;

export async function accept(store: Store, changes: Partial<AcceptInput> = {}): Promise<Accepted> {
  const outcome = await store.acceptTurn(send(changes));
  if (outcome.kind !== "accepted") throw new Error(`not accepted: ${outcome.kind}`);
  return outcome;
}

/** An accepted turn whose writer has epoch 1. */
export async function runningTurn(
  store: Store,
  changes: Partial<AcceptInput> = {},
): Promise<{ turn: TurnRow; session: SessionRow }> {
  const { turn, session } = await accept(store, changes);
  if (!(await store.takeTurn(turn.turnId, 0, 1, turn.owner))) throw new Error("not taken");
  return { turn: { ...turn, epoch: 1 }, session };
}

export function commitOf(turn: TurnRow, changes: Partial<CommitInput> = {}): CommitInput {
  return {
    turnId: turn.turnId,
    epoch: turn.epoch,
    outcome: 1,
    stopReason: 0,
    usage: Buffer.from("usage"),
    terminalSeq: 61,
    terminalBatch: Buffer.from("terminal bytes"),
    endTime: new Date("2030-01-02T03:04:05.678Z"),
    lanes: turn.lanes.map((lane) => ({
      modelIndex: lane.modelIndex,
      messageId: lane.messageId,
      modelId: `${lane.modelId}-really-used`,
      outcome: 1,
      usage: Buffer.from(`usage ${lane.modelIndex}`),
      answer: Buffer.from(`answer ${lane.modelIndex}`),
      text: `text ${lane.modelIndex}`,
      toolCalls: [],
      citations: [],
    })),
    archive: undefined,
    ...changes,
  };
}

/** A turn that is committed and closed; its session is free for the next one. */
export async function closedTurn(
  store: Store,
  changes: Partial<AcceptInput> = {},
): Promise<{ turn: TurnRow; session: SessionRow }> {
  const { turn, session } = await runningTurn(store, changes);
  await store.commitTurn(commitOf(turn));
  await store.markClosed(turn.turnId);
  return { turn: (await store.loadTurn(turn.turnId))!, session };
}

/** All rows of a paged list, page by page. */
export async function allPages<T>(
  list: (token: string) => Promise<{ rows: readonly T[]; nextToken: string }>,
): Promise<T[][]> {
  const pages: T[][] = [];
  let token = "";
  do {
    const page = await list(token);
    pages.push([...page.rows]);
    token = page.nextToken;
  } while (token !== "");
  return pages;
}

export async function collect<T>(source: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of source) items.push(item);
  return items;
}
