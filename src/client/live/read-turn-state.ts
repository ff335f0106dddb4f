import type { Client } from "@connectrpc/connect";
import type { ChatService } from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { TurnState } from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { clientError } from "../errors.js";
import { SnapshotJoiner } from "../intake.js";

/** The state of a turn as it is now, in however many parts it comes. */
export async function readTurnState(
  api: Pick<Client<typeof ChatService>, "getTurn">,
  turnId: string,
  signal?: AbortSignal,
): Promise<TurnState> {
  const joiner = new SnapshotJoiner();
  for (let partToken = ""; ;) {
    const reply = await api.getTurn({ turnId, partToken }, { signal });
    if (reply.state) return reply.state;
    const whole = reply.part && joiner.take(reply.part);
    if (whole) return whole.state;
    partToken = reply.nextPartToken;
    if (!partToken) throw clientError(ErrorCode.INTERNAL, "the turn's state came without its end");
  }
}
