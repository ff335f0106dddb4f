/** Child processes of a benchmark: started with node, ready at their first line of JSON, CPU time read from the kernel. */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const TICKS_PER_SECOND = 100;

/** Starts `node program args` (flags of node may stand before the program) and resolves with { pid, facts, end } at its ready line (JSON with "ready" in it). */
export function startProcess(program, args = [], env = {}) {
  const child = spawn(process.execPath, [program, ...args], {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
  });
  let output = "";
  const exited = new Promise((resolve) => child.once("exit", resolve));
  return new Promise((resolve, reject) => {
    exited.then((code) => reject(new Error(`${program} ended with ${code}:\n${output}`)));
    let line = "";
    const take = (chunk) => {
      output += chunk;
      line += chunk;
      for (let end = line.indexOf("\n"); end >= 0; end = line.indexOf("\n")) {
        const text = line.slice(0, end);
        line = line.slice(end + 1);
        if (!text.includes('"ready"')) continue;
        resolve({
          pid: child.pid,
          facts: JSON.parse(text),
          end: async () => {
            child.kill("SIGTERM");
            await Promise.race([exited, new Promise((done) => setTimeout(done, 5_000).unref())]);
            child.kill("SIGKILL");
          },
        });
      }
    };
    child.stdout.on("data", (chunk) => take(String(chunk)));
    child.stderr.on("data", (chunk) => take(String(chunk)));
  });
}

/** Runs `node program args` to its end and resolves with the last line of its output as JSON. */
export function runProcess(program, args, env = {}, timeoutMs = 120_000) {
  const child = spawn(process.execPath, [path.join(root, program), ...args], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
  });
  let output = "";
  child.stdout.on("data", (chunk) => (output += chunk));
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => child.kill("SIGKILL"), timeoutMs);
    child.once("exit", (code) => {
      clearTimeout(timer);
      const last = output.trim().split("\n").at(-1);
      if (code !== 0 || !last)
        reject(new Error(`${program} ${args.join(" ")} ended with ${code}: ${output}`));
      else resolve(JSON.parse(last));
    });
  });
}

/** User and system CPU time of a process so far, microseconds (10 ms resolution). */
export function cpuMicros(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return ((Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND) * 1e6;
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

export function percentile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}
