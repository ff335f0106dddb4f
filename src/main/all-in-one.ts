/** `npm start`: the three services in one process, still talking gRPC over loopback. */
import { runAllInOne } from "./run-all-in-one.js";
import { runService } from "./run-service.js";

await runService("turnwire", (config, logger, signal) =>
  runAllInOne({ config, logger, env: process.env, signal }),
);
