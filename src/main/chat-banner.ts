import type { Config } from "./config.js";
import type { RunningChat } from "./start-chat.js";

/** The start-up lines for people. */
export function chatBanner(config: Config, chat: RunningChat): string[] {
  const scheme = config.tls ? "https" : "http";
  const host = config.host.includes(":") ? `[${config.host}]` : config.host;
  const base = `${scheme}://${host}:${chat.httpPort}`;
  return [
    `Turnwire is ready on ${base} (open it in a browser; Connect, gRPC, gRPC-Web), native gRPC on ${host}:${chat.grpcPort}`,
    `log: ${chat.log}; store: Postgres (${chat.store}); data: ${config.dataDir}`,
    `try: curl -H 'content-type: application/json' -d '{"text":"hello"}' ${base}/turnwire.chat.v1.ChatService/SendMessageAndWait`,
  ];
}
