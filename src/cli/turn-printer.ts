/**
 * Prints a turn on a terminal as it comes. One lane streams, the others wait for their turn: the lowest one that has not
 * ended is shown, and what the rest said meanwhile follows after it, under its model's name.
 */
import type { TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
import type { Terminal } from "./terminal.js";
import { piecesOfLane, TurnView, type Piece } from "./turn-view.js";

interface LaneQueue {
  readonly pieces: Piece[];
  ended: boolean;
}

export class TurnPrinter {
  readonly #terminal: Terminal;
  readonly #view = new TurnView();
  readonly #lanes = new Map<number, LaneQueue>();
  #current: number | undefined;
  /** Text has been printed since the last break. */
  #inBlock = false;
  /** A block was printed before: an empty line stands before the next. */
  #gap = false;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
  }

  async packets(packets: readonly Packet[]): Promise<void> {
    for (const packet of packets) {
      const { lane, pieces, laneEnded } = this.#view.next(packet);
      if (packet.payload.case === "turnStarted") {
        for (const { modelIndex } of this.#view.lanes) this.#queue(modelIndex);
      }
      if (lane === undefined) {
        for (const piece of pieces) await this.#print(piece);
        continue;
      }
      const queue = this.#queue(lane);
      queue.pieces.push(...pieces);
      if (laneEnded) queue.ended = true;
      await this.#drain();
    }
  }

  /** Shows a state that replaces everything shown so far. */
  async snapshot(state: TurnState): Promise<void> {
    this.#lanes.clear();
    this.#current = undefined;
    this.#view.adopt(state);
    if (state.lanes.length === 0) return;
    await this.#terminal.freshLine();
    await this.#print({ kind: "status", text: "the turn so far:" });
    for (const lane of state.lanes) {
      this.#lanes.set(lane.modelIndex, { pieces: piecesOfLane(lane), ended: lane.end !== undefined });
    }
    await this.#drain();
  }

  /** Everything that is still held back, then the end of the line. */
  async end(): Promise<void> {
    for (const queue of this.#lanes.values()) queue.ended = true;
    await this.#drain();
    await this.#terminal.freshLine();
  }

  #queue(lane: number): LaneQueue {
    const queue = this.#lanes.get(lane) ?? { pieces: [], ended: false };
    this.#lanes.set(lane, queue);
    return queue;
  }

  /** Prints the current lane's pieces, and goes on to the next lane when it has ended. */
  async #drain(): Promise<void> {
    for (const lane of [...this.#lanes.keys()].sort((a, b) => a - b)) {
      const queue = this.#lanes.get(lane)!;
      if (this.#current !== lane && queue.pieces.length > 0) await this.#enter(lane);
      for (const piece of queue.pieces.splice(0)) await this.#print(piece);
      if (!queue.ended) return;
    }
  }

  async #enter(lane: number): Promise<void> {
    this.#current = lane;
    if (this.#lanes.size < 2) return;
    const info = this.#view.lanes.find(({ modelIndex }) => modelIndex === lane);
    const name = info?.displayName || info?.modelId || `model ${lane}`;
    await this.#terminal.freshLine();
    this.#gap = this.#inBlock = false;
    await this.#terminal.text(`-- ${name} --\n`, "bold");
  }

  async #print(piece: Piece): Promise<void> {
    switch (piece.kind) {
      case "answer":
        return this.#text(piece.text);
      case "reasoning":
        return this.#terminal.isTTY ? this.#text(piece.text, "dim") : undefined; // a pipe gets the answer alone
      case "break":
        await this.#terminal.freshLine();
        this.#gap ||= this.#inBlock;
        this.#inBlock = false;
        return;
      case "status":
        return this.#terminal.aside(piece.text, piece.bad ? "red" : "dim");
      case "passing":
        return this.#terminal.passing(piece.text);
    }
  }

  async #text(text: string, style?: "dim"): Promise<void> {
    if (this.#gap) await this.#terminal.text("\n");
    this.#gap = false;
    this.#inBlock = true;
    await this.#terminal.text(text, style);
  }
}
