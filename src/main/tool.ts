/** `npm run start:tool`: the tool peer as a process of its own. */
import { runService } from "./run-service.js";
import { startTool } from "./start-tool.js";

await runService("tool", async (config, logger) => {
  const tool = await startTool(config, config.toolPort ?? 9092, process.env, logger);
  return {
    banner: [`Turnwire tool peer on ${config.host}:${tool.port}`],
    facts: { port: tool.port },
    close: () => tool.close(config.drainMs),
  };
});
