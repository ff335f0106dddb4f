/** `npm run start:llm`: the llm peer as a process of its own. */
import { runService } from "./run-service.js";
import { startLlm } from "./start-llm.js";

await runService("llm", async (config, logger) => {
  const llm = await startLlm(config, config.llmPort ?? 9091, process.env, logger);
  return {
    banner: [`Turnwire llm peer on ${config.host}:${llm.port}`],
    facts: { port: llm.port },
    close: () => llm.close(config.drainMs),
  };
});
