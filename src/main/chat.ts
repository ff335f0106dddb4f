/** `npm run start:chat`: the orchestrator and the edge as a process of its own; the peers are elsewhere. */
import { chatBanner } from "./chat-banner.js";
import { runService } from "./run-service.js";
import { startChat } from "./start-chat.js";

await runService("chat", async (config, logger, signal) => {
  const { llmAddresses, toolAddresses } = config;
  const chat = await startChat({ config, logger, env: process.env, llmAddresses, toolAddresses, signal });
  return {
    banner: chatBanner(config, chat),
    facts: { httpPort: chat.httpPort, grpcPort: chat.grpcPort, log: chat.log, store: chat.store },
    close: () => chat.close(),
  };
});
