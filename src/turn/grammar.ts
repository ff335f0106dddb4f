import type { Packet } from "../../gen/turnwire/packet/v1/packet_pb.js";
export class GrammarChecker {
  push(_packet: Packet): string[] { throw new Error("to come"); }
  finish(): string[] { throw new Error("to come"); }
}
