import { randomInt } from "node:crypto";
import { isFree } from "../../src/main/embedded/loopback-port.js";

/** Below the ports that systems give out by themselves, to `listen(0)` and to outgoing connections (from 32768 on). */
const [FIRST, END] = [15_000, 32_000];

/**
 * Ports on 127.0.0.1 that nobody listens on, and that nobody gets who does not ask for that very port: they stay free
 * until they are used.
 */
export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>();
  while (ports.size < count) {
    const port = randomInt(FIRST, END);
    if (await isFree(port)) ports.add(port);
  }
  return [...ports];
}
