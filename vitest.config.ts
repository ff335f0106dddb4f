import { configDefaults, defineConfig } from "vitest/config";

/** Suites that kill processes or hold times: they run alone, after the others, so that only the machine can disturb them. */
const TIMED = [
  "test/chaos/**/*.test.ts",
  "test/e2e/stop-turn.test.ts",
  "test/e2e/replicas.test.ts",
  "test/e2e/start-time.test.ts",
  "test/contract/store-outage.test.ts",
  "test/page/first-load.test.ts",
  "test/page/eight-tabs.test.ts",
  "test/contract/llm-cancel.test.ts",
];

export default defineConfig({
  test: {
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // How long something that is polled for may take on a loaded machine; the default is one second.
    expect: { poll: { timeout: 15_000 } },
    projects: [
      {
        extends: true,
        test: {
          name: "suites",
          include: ["src/**/*.test.ts", "test/**/*.test.ts"],
          exclude: [...configDefaults.exclude, ...TIMED],
          // Two cores, real servers: more workers only make each test slower.
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      { extends: true, test: { name: "timed", include: TIMED, maxWorkers: 1, sequence: { groupOrder: 1 } } },
    ],
  },
});
