import type { CliContext } from "../context.js";
import { CliError, ExitCode } from "../exit-codes.js";
import { packetJson, packetLine } from "../packet-line.js";
import { ConnectionNotes, reportOutcome } from "./read-turn.js";

export interface TailOptions {
  /** Seq of the first packet to print. */
  readonly from?: number;
  /** The last seq that the reader has: prints what follows it. */
  readonly after?: number;
  /** Seq of the last packet to print. */
  readonly to?: number;
}

/** Prints a turn's packets and goes on as long as it runs. */
export async function tail(turnId: string, options: TailOptions, context: CliContext): Promise<ExitCode> {
  const stream = await printPackets(turnId, options, true, context);
  return stream.state.stop ? reportOutcome(stream.state, context) : ExitCode.OK;
}

/** Prints the packets that are there, and ends. */
export async function replay(turnId: string, options: TailOptions, context: CliContext): Promise<ExitCode> {
  await printPackets(turnId, options, false, context);
  return ExitCode.OK;
}

async function printPackets(turnId: string, options: TailOptions, follow: boolean, context: CliContext) {
  const { client, terminal, json, signal } = context;
  const { to = Number.POSITIVE_INFINITY } = options;
  const afterSeq = cursorOf(options);
  const stream = client.attach(turnId, { afterSeq, follow, signal });
  const connection = new ConnectionNotes();
  if (to <= afterSeq) return stream;
  for await (const update of stream) {
    if (update.kind === "connection") {
      const text = connection.note(update);
      if (text) await terminal.aside(text);
    } else if (update.kind === "snapshot" && update.seq > afterSeq) {
      await terminal.aside(`packets up to seq ${update.seq} are no longer kept one by one`);
    } else if (update.kind === "packets") {
      for (const packet of update.packets) {
        if (packet.seq > to) return stream;
        await terminal.line(
          json ? packetJson(packet) : packetLine(packet, terminal.isTTY ? terminal.columns : undefined),
        );
      }
      if (stream.lastSeq >= to) return stream;
    }
  }
  return stream;
}

function cursorOf({ from, after }: TailOptions): number {
  if (from !== undefined && after !== undefined) {
    throw new CliError(ExitCode.USAGE, "--from and --after exclude each other");
  }
  return after ?? Math.max(0, (from ?? 1) - 1);
}
