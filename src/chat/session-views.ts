/** Sessions and turns with what only the log knows: the turns that run in them, and how far those are. */
import type { Session, TurnSummary } from "../../gen/turnwire/chat/v1/types_pb.js";
import type { Principal } from "../lib/rpc/service-binding.js";
import type { SessionRow, TurnRow } from "../store/store.js";
import type { ChatDeps } from "./ports.js";
import type { TurnReader } from "./read-turn.js";
import { viewSession, viewTurn } from "./views.js";

export class SessionViews {
  readonly #store: ChatDeps["store"];
  readonly #reader: TurnReader;

  constructor({ store }: Pick<ChatDeps, "store">, reader: TurnReader) {
    this.#store = store;
    this.#reader = reader;
  }

  /** Throws when the log cannot be asked. */
  async turns(rows: readonly TurnRow[], signal: AbortSignal): Promise<TurnSummary[]> {
    return Promise.all(rows.map(async (row) => viewTurn(row, await this.#reader.headSeq(row, signal))));
  }

  /** Without heads (0) where the log cannot be asked: what Postgres has is shown all the same. */
  async turnsAsFarAsKnown(rows: readonly TurnRow[], signal: AbortSignal): Promise<TurnSummary[]> {
    const headOf = (row: TurnRow): Promise<number> =>
      this.#reader.headSeq(row, signal).catch(() => (signal.throwIfAborted(), 0));
    return Promise.all(rows.map(async (row) => viewTurn(row, await headOf(row))));
  }

  async sessions(principal: Principal, rows: readonly SessionRow[], signal: AbortSignal): Promise<Session[]> {
    if (rows.length === 0) return [];
    const running = await this.#store.listRunningTurns(
      principal,
      rows.map((row) => row.sessionId),
    );
    const summaries = await this.turnsAsFarAsKnown(running, signal);
    return rows.map((row) =>
      viewSession(
        row,
        summaries.filter((turn) => turn.sessionId === row.sessionId),
      ),
    );
  }

  async session(principal: Principal, row: SessionRow, signal: AbortSignal): Promise<Session> {
    return (await this.sessions(principal, [row], signal))[0]!;
  }
}
