/**
 * Whether a peer answers: its grpc.health.v1, asked every two seconds. Owns the question and its connection.
 * H1 a peer is down when it did not answer, or said that it does not serve, twice in a row; nobody is down before that.
 * H2 a peer that knows no health service lives: it answered. H3 `close` ends all of it.
 */
import { LlmProxyService } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Clock } from "../../lib/clock.js";
import { TurnError } from "../../lib/errors.js";
import type { Logger } from "../../lib/log.js";
import { createGrpcClient } from "../../lib/rpc/grpc-client.js";

const ASK_EVERY_MS = 2_000;
/** After a bad answer. */
const ASK_AGAIN_MS = 500;
const ANSWER_MS = 5_000;
const CONNECT_MS = 2_000;
const BAD_ANSWERS = 2;

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
  let badAnswers = 0;

  async function ask(): Promise<void> {
    const lives = await client
      .ready(AbortSignal.any([closed.signal, AbortSignal.timeout(ANSWER_MS)]))
      .then(() => true, showsLife);
    if (closed.signal.aborted) return;
    badAnswers = lives ? 0 : badAnswers + 1;
    if (badAnswers > 0 && badAnswers < BAD_ANSWERS) return;
    const down = badAnswers > 0;
    if (down !== isDown) logger.warn({ provider: name, down }, down ? WENT : CAME_BACK);
    isDown = down;
  }

  async function watch(): Promise<void> {
    for (;;) {
      await ask();
      await clock.sleep(badAnswers === 1 ? ASK_AGAIN_MS : ASK_EVERY_MS, closed.signal);
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

/** Who refuses, or knows no such service, is there. */
function showsLife(error: unknown): boolean {
  if (!(error instanceof TurnError)) return false; // the time for the answer was up
  return error.code !== ErrorCode.UNAVAILABLE && error.code !== ErrorCode.DEADLINE_EXCEEDED;
}
