#!/usr/bin/env node
// The command line from a clone: builds what is out of date, then runs it.
import { buildIfStale } from "../scripts/build.mjs";

await buildIfStale();
await import("../dist/src/cli/main.js");
