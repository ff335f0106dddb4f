/**
 * Whether a peer answers: its grpc.health.v1, asked every two seconds. Owns the question and its connection.
 * H1 a peer is down when it says so, when nothing listens, or when it is silent twice in a row; nobody is down before the
 * first answer. H2 a peer that knows no health service lives: it answered. H3 `close` ends all of it.
 */
import { LlmProxyService } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../../lib/clock.js";
import { TurnError } from "../../lib/errors.js";
import type { Logger } from "../../lib/log.js";
import { createGrpcClient } from "../../lib/rpc/grpc-client.js";

const ASK_EVERY_MS = 2_000;
const ANSWER_MS = 2_000;
const CONNECT_MS = 1_000;
const SILENT_TWICE = 2;

export interface PeerHealthOptions {
  /** The provider's name, for the log. */
  readonly name: string;
  readonly addresses: string;
  readonly token: string | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
}

export interface PeerHealth {
  readonly isDown: boolean;
  close(): void;
}

/** Asks until it is closed. */
export function watchPeerHealth({ name, addresses, token, clock, logger }: PeerHealthOptions): PeerHealth {
  const closed = new AbortController();
  const client = createGrpcClient(LlmProxyService, {
    ...{ addresses, connectWaitMs: CONNECT_MS, ...(token !== undefined && { token }) },
    logger: logger.child({}, { level: "silent" }), // a change is said once, below
  });
  let isDown = false;
  let silent = 0;

  async function ask(): Promise<void> {
    const answer = await client
      .ready(AbortSignal.any([closed.signal, AbortSignal.timeout(ANSWER_MS)]))
      .then(() => "lives" as const, meaningOf);
    if (closed.signal.aborted) return;
    silent = answer === "silent" ? silent + 1 : 0;
    const down = answer === "down" || silent >= SILENT_TWICE;
    if (answer === "silent" && !down) return;
    if (down !== isDown) logger.warn({ provider: name, down }, down ? WENT : CAME_BACK);
    isDown = down;
  }

  async function watch(): Promise<void> {
    for (;;) {
      await ask();
      await clock.sleep(ASK_EVERY_MS, closed.signal);
    }
  }

  watch().catch((error: unknown) => {
    if (!closed.signal.aborted) logger.error({ err: error, provider: name }, "a pipe is watched no more");
  });
  return {
    get isDown() {
      return isDown;
    },
    close() {
      closed.abort();
      client.close();
    },
  };
}

const WENT = "the pipe does not answer: its models are left out until it does";
const CAME_BACK = "the pipe answers again";

function meaningOf(error: unknown): "lives" | "down" | "silent" {
  if (!(error instanceof TurnError)) return "silent"; // the time for the answer was up
  if (error.code === ErrorCode.DEADLINE_EXCEEDED) return "silent";
  return error.code === ErrorCode.UNAVAILABLE ? "down" : "lives";
}
