/** What chat and tail share: reading a turn to its end, saying what the connection does. */
import { TurnOutcome } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { TurnState } from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import type { ConnectionUpdate, TurnStream } from "../../client/index.js";
import type { CliContext } from "../context.js";
import { ExitCode } from "../exit-codes.js";
import { packetJson } from "../packet-line.js";
import { TurnPrinter } from "../turn-printer.js";
import { outcomeText } from "../turn-view.js";

/** Prints a turn as it comes (as packets with --json), to its end. */
export async function printTurn(stream: TurnStream, { terminal, json }: CliContext): Promise<TurnState> {
  const printer = new TurnPrinter(terminal);
  const connection = new ConnectionNotes();
  for await (const update of stream) {
    switch (update.kind) {
      case "receipt":
        if (update.receipt.queuePosition > 0) {
          await terminal.aside(
            `queued at position ${update.receipt.queuePosition}: turn ${update.receipt.turnId}`,
          );
        }
        break;
      case "packets":
        if (json) for (const packet of update.packets) await terminal.line(packetJson(packet));
        else await printer.packets(update.packets);
        break;
      case "snapshot":
        if (!json) await printer.snapshot(update.state);
        else await terminal.aside(`earlier packets are gone: the state stands at seq ${update.seq}`);
        break;
      case "connection": {
        const text = connection.note(update);
        if (text) await terminal.aside(text);
      }
    }
  }
  if (!json) await printer.end();
  return stream.state;
}

/** Says in words how the turn ended, and as an exit code. */
export async function reportOutcome(state: TurnState, { terminal }: CliContext): Promise<ExitCode> {
  const text = outcomeText(state);
  if (text) await terminal.aside(text, "red");
  return state.stop?.outcome === TurnOutcome.COMPLETED ? ExitCode.OK : ExitCode.TURN_FAILED;
}

/** Words for a connection that is lost and found; silent until it stood once, for then the error itself is told. */
export class ConnectionNotes {
  #stood = false;
  #lost = false;

  note({ status, attempt, error }: ConnectionUpdate): string | undefined {
    switch (status) {
      case "connected": {
        const found = this.#lost;
        this.#stood = true;
        this.#lost = false;
        return found ? "connected again" : undefined;
      }
      case "lost": {
        const first = this.#stood && !this.#lost;
        this.#lost = this.#stood;
        if (first) return `connection lost (${error?.message ?? "no reason known"}): trying again`;
        return this.#stood && attempt % 10 === 0 ? `still trying (${attempt} attempts)` : undefined;
      }
      case "resuming":
        return undefined;
    }
  }
}
