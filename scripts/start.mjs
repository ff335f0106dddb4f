/** Starts a service from the build, building first when the sources are newer: `node scripts/start.mjs all-in-one`. */
import { buildIfStale } from "./build.mjs";

const SERVICES = ["all-in-one", "chat", "llm", "tool"];
const name = process.argv[2] ?? "all-in-one";
if (!SERVICES.includes(name)) {
  console.error(`unknown service "${name}": one of ${SERVICES.join(", ")}`);
  process.exit(2);
}
await buildIfStale();
await import(`../dist/src/main/${name}.js`);
