/** Starts a service from the build, building first when the sources are newer: `node scripts/start.mjs all-in-one`. */

const SERVICES = ["all-in-one", "chat", "llm", "tool"];
const name = process.argv[2] ?? "all-in-one";
if (!SERVICES.includes(name)) {
  console.error(`unknown service "${name}": one of ${SERVICES.join(", ")}`);
  process.exit(2);
}
const { buildIfStale } = await import("./build.mjs").catch(explainMissing);
await buildIfStale().catch(explainMissing);
await import(`../dist/src/main/${name}.js`);

/** A shell with NODE_ENV=production makes `npm ci` leave out what the build needs. */
function explainMissing(error) {
  if (error.code !== "ERR_MODULE_NOT_FOUND") throw error;
  console.error("turnwire: a package that the build needs is not installed; run: npm ci --include=dev");
  process.exit(1);
}
