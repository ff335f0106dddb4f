/** A provider of the configuration, ready to be asked. */
import { assertNever } from "../../lib/assert-never.js";
import type { ProviderConfig } from "../config.js";
import { createDemoProvider } from "./demo.js";
import { createDialect } from "./dialects.js";
import { createHttpProvider } from "./http-provider.js";
import { createPipeProvider } from "./pipe.js";
import type { CompletionProvider, ProviderDeps } from "./provider.js";

export function createProvider(config: ProviderConfig, deps: ProviderDeps): CompletionProvider {
  switch (config.kind) {
    case "http":
      return createHttpProvider(createDialect(config.api, config), config, deps.limits, deps.clock);
    case "pipe":
      return createPipeProvider(config, deps);
    case "demo":
      return createDemoProvider(config, deps.clock);
    default:
      return assertNever(config, "provider");
  }
}
