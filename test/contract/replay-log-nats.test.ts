import { connect } from "nats";
import { silentLogger } from "../../src/lib/log.js";
import { connectNatsReplayLog, type NatsReplayLog } from "../../src/replay/nats-replay-log.js";
import type { NatsServerBinary } from "../../src/main/embedded/nats-server.js";
import { freePorts } from "../support/free-ports.js";
import { describeWithNats, startTestNats } from "../support/nats.js";
import { startTcpProxy } from "../support/tcp-proxy.js";
import { replayLogContract, type LogHarness } from "./replay-log.js";

const STREAM = "TURNWIRE_LOG";

async function natsHarness(binary: NatsServerBinary): Promise<LogHarness> {
  const monitorPort = (await freePorts(1))[0]!;
  const { server, end } = await startTestNats(binary, { monitorPort });
  const admin = await connect({ servers: `127.0.0.1:${server.port}`, ...credentialsOf(server.url) });
  const jsm = await admin.jetstreamManager();
  const open = (options: { port?: number; maxBytes?: number; url?: string } = {}): Promise<NatsReplayLog> => {
    const url = new URL(options.url ?? server.url);
    if (options.port) url.port = String(options.port);
    const { maxBytes } = options;
    return connectNatsReplayLog({
      url: url.href,
      logger: silentLogger,
      verifyMs: 1_000,
      ...(maxBytes === undefined ? {} : { maxBytes }),
    });
  };
  return {
    another: () => open(),
    replace: async () => void (await jsm.streams.delete(STREAM)),
    expire: async (turnId, position) => {
      // What max_age does: whatever is old enough goes, of all turns.
      await jsm.streams.purge(STREAM, { seq: position + 1 });
    },
    lossy: async () => {
      const proxy = await startTcpProxy(server.port);
      const log = await open({ port: proxy.port });
      return {
        log,
        lose: () => proxy.holdAnswers(),
        restore: () => proxy.cut(),
        close: async () => {
          await log.close();
          await proxy.close();
        },
      };
    },
    small: async () => {
      const own = await startTestNats(binary);
      const log = await open({ url: own.server.url, maxBytes: 600_000 });
      return {
        log,
        close: async () => {
          await log.close();
          await own.end();
        },
      };
    },
    held: async () => {
      const { consumer_count: consumers } = (await jsm.streams.info(STREAM)).state;
      return consumers + (await liveSubscriptions(monitorPort));
    },
    close: async () => {
      await admin.close();
      await end();
    },
  };
}

function credentialsOf(url: string): { readonly user: string; readonly pass: string } {
  const { username, password } = new URL(url);
  return { user: username, pass: password };
}

async function liveSubscriptions(monitorPort: number): Promise<number> {
  const answer = await fetch(`http://127.0.0.1:${monitorPort}/connz?subs=1`);
  const { connections } = (await answer.json()) as { connections: { subscriptions_list?: string[] }[] };
  return connections
    .flatMap((one) => one.subscriptions_list ?? [])
    .filter((name) => name.startsWith("tw.live.")).length;
}

describeWithNats("ReplayLog", (binary) => {
  replayLogContract(() => natsHarness(binary), { shared: true });
});
