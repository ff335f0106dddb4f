/**
 * A turn that is being watched: batches of packets in, a view per frame out. Owns the turn's state and viewer.
 *
 * T1 packets are folded once each and in order; what is repeated is dropped. What cannot be read on from is told: a gap
 * waits for the missing packets, a packet that must be understood and is not for the service's state.
 * T2 the view is made at most once per frame, and always once more after the last packet.
 */
import type { TurnState } from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { Packet } from "../../../gen/turnwire/packet/v1/packet_pb.js";
import { applyPacket, emptyTurnState } from "../../turn/fold.js";
import { FrameBatcher, type FrameScheduler } from "../frames.js";
import { siftPackets, type Sifted } from "../intake.js";
import { TurnViewer } from "../view/turn-viewer.js";
import type { TurnView } from "../view/view-types.js";
import type { WatchedTurn } from "./hub-messages.js";

export interface LiveTurnOptions {
  /** The view has changed. */
  readonly onView: (view: TurnView) => void;
  /** Default: the browser's frames. */
  readonly frames?: FrameScheduler;
}

export class LiveTurn {
  readonly turnId: string;
  readonly sessionId: string;
  readonly #options: LiveTurnOptions;
  readonly #viewer = new TurnViewer();
  readonly #frames: FrameBatcher<Packet>;
  #state: TurnState = emptyTurnState();
  #logId = "";
  #isEnded = false;

  constructor(turnId: string, sessionId: string, options: LiveTurnOptions) {
    this.turnId = turnId;
    this.sessionId = sessionId;
    this.#options = options;
    this.#frames = new FrameBatcher(
      (fresh) => options.onView(this.#viewer.update(this.#state, fresh)),
      options.frames && { scheduler: options.frames },
    );
  }

  get state(): TurnState {
    return this.#state;
  }

  /** The view last made; undefined before the first packets. */
  get view(): TurnView | undefined {
    return this.#viewer.view;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** Where it stands: the cursor. */
  get position(): WatchedTurn {
    return { turnId: this.turnId, sessionId: this.sessionId, afterSeq: this.#state.seq, logId: this.#logId };
  }

  /** Why it cannot be read on from here, if so: ask for the missing packets from `position` on, or for the state. */
  take(packets: readonly Packet[], logId: string): Sifted["trouble"] {
    if (logId) this.#logId = logId;
    if (this.#isEnded) return undefined;
    const { fresh, terminal, trouble } = siftPackets(packets, this.#state.seq);
    for (const packet of fresh) applyPacket(this.#state, packet);
    this.#isEnded = terminal;
    this.#frames.push(fresh);
    return trouble;
  }

  /** Goes on from a state that was read elsewhere, when the packets cannot be had. */
  replace(state: TurnState): void {
    this.#frames.flush();
    this.#state = state;
    this.#isEnded = state.stop !== undefined;
    this.#options.onView(this.#viewer.update(state));
  }
}
