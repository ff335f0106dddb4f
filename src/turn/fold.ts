import type { TurnState } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
/** The state before the first packet. */
export function emptyTurnState(): TurnState { throw new Error("to come"); }
/** Applies one packet to a state that the caller owns. */
export function applyPacket(_state: TurnState, _packet: Packet): void { throw new Error("to come"); }
/** Folds packets, from a state (which is not changed) or from nothing. */
export function fold(_packets: Iterable<Packet>, _from?: TurnState): TurnState { throw new Error("to come"); }
