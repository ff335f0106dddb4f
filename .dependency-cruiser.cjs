/** Who may import whom (docs/architecture.md). Everything may import src/lib and gen. */
const only = (name, folder, allowed) => ({
  name,
  comment: `${folder} may import ${allowed.length ? allowed.join(", ") : "nothing"} besides lib and gen`,
  severity: "error",
  from: { path: `^src/${folder}/`, pathNot: "\\.test\\.ts$" },
  to: { path: "^src/", pathNot: [`^src/${folder}/`, "^src/lib/", ...allowed.map((path) => `^src/${path}`)] },
});

module.exports = {
  forbidden: [
    { name: "no-circular", severity: "error", from: {}, to: { circular: true } },
    {
      name: "lib-is-the-bottom",
      severity: "error",
      from: { path: "^src/lib/" },
      to: { path: "^src/", pathNot: "^src/lib/" },
    },
    only("turn-is-pure", "turn", []),
    only("chat-sees-ports", "chat", ["turn/", "replay/(replay-log|claim|trim-entry)", "store/store"]),
    only("llm-stands-alone", "llm", []),
    only("tool-reads-the-web", "tool", ["egress/", "extract/"]),
    only("egress-stands-alone", "egress", []),
    only("extract-sees-egress", "extract", ["egress/"]),
    only("documents-see-ports", "documents", [
      "egress/",
      "extract/",
      "store/(db|owner-key|page-token|session-events|store)",
    ]),
    only("files-see-the-store-port", "files", ["extract/media-type", "store/(store|uploads)"]),
    only("replay-stands-alone", "replay", []),
    only("store-stands-alone", "store", []),
    only("client-folds", "client", ["turn/"]),
    only("edge-adapts", "edge", ["chat/", "files/", "replay/replay-log", "store/store"]),
    only("cli-uses-the-client", "cli", ["client/"]),
    only("web-uses-the-client", "web", ["client/"]),
    {
      name: "turn-and-client-run-in-browsers",
      severity: "error",
      from: { path: "^src/(turn|client)/", pathNot: "\\.test\\.ts$" },
      to: { dependencyTypes: ["core"] },
    },
    {
      name: "memory-log-is-for-tests",
      severity: "error",
      from: { path: "^src/", pathNot: "\\.test\\.ts$" },
      to: { path: "memory-replay-log" },
    },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
    enhancedResolveOptions: {
      extensions: [".ts", ".tsx", ".js"],
      exportsFields: ["exports"],
      conditionNames: ["import"],
    },
  },
};
