import type { Logger } from "../lib/log.js";
import { deferred } from "../lib/signals.js";
import type { DocumentIndex } from "../tool/builtin/document-index.js";
import { bothOpened, Closers } from "./closers.js";
import { chatBanner } from "./chat-banner.js";
import type { Config } from "./config.js";
import { laterIndex } from "./document-index.js";
import type { Running } from "./run-service.js";
import { startChat, type StartChatOptions } from "./start-chat.js";
import { startLlm, type RunningPeer } from "./start-llm.js";
import { startTool } from "./start-tool.js";

export interface AllInOneOptions extends Pick<StartChatOptions, "signal" | "wrapLog" | "wrapStore"> {
  readonly config: Config;
  readonly logger: Logger;
  readonly env: NodeJS.ProcessEnv;
}

/** The peers take free ports unless theirs are set; the chat service finds them over loopback. */
export async function runAllInOne(options: AllInOneOptions): Promise<Running> {
  const { config, logger, env } = options;
  const closers = new Closers(logger);
  const index = deferred<DocumentIndex>();
  try {
    const opened = (name: string, starting: Promise<RunningPeer>): Promise<RunningPeer> =>
      starting.then((peer) => {
        closers.add(name, () => peer.close(0));
        return peer;
      });
    const [llm, tool] = await bothOpened(
      opened("llm", startLlm(config, config.llmPort ?? 0, env, logger.child({ component: "llm" }))),
      opened(
        "tool",
        startTool(
          config,
          config.toolPort ?? 0,
          env,
          logger.child({ component: "tool" }),
          laterIndex(index.promise),
        ),
      ),
    );
    const chat = await startChat({
      ...options,
      logger: logger.child({ component: "chat" }),
      llmAddresses: `${peerHost(config.host)}:${llm.port}`,
      toolAddresses: `${peerHost(config.host)}:${tool.port}`,
    });
    closers.add("chat", () => chat.close());
    index.resolve(chat.documentIndex);
    return {
      banner: chatBanner(config, chat),
      facts: {
        httpPort: chat.httpPort,
        grpcPort: chat.grpcPort,
        llmPort: llm.port,
        toolPort: tool.port,
        log: chat.log,
        store: chat.store,
      },
      close: () => closers.closeAll(),
    };
  } catch (error) {
    await closers.closeAll();
    throw error;
  }
}

/** Where the chat service reaches peers that listen on `host`, as a part of an address. */
function peerHost(host: string): string {
  if (host === "0.0.0.0") return "127.0.0.1";
  if (host === "::") return "[::1]";
  return host.includes(":") ? `[${host}]` : host;
}
