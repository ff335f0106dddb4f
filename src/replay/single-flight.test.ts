import { describe, expect, test } from "vitest";
import { deferred } from "../lib/signals.js";
import { SingleFlight } from "./single-flight.js";

const live = (): AbortSignal => new AbortController().signal;

describe("SingleFlight", () => {
  /** Calls that end by hand; the n-th answers n. */
  function calls() {
    const gates: ReturnType<typeof deferred<void>>[] = [];
    const call = async (): Promise<number> => {
      const gate = deferred<void>();
      const number = gates.push(gate);
      await gate.promise;
      return number;
    };
    return { gates, call };
  }

  test("join shares the call under way; the next begins a new one", async () => {
    const { gates, call } = calls();
    const flight = new SingleFlight<number>();
    const shared = [
      flight.join("a", call, live()),
      flight.join("a", call, live()),
      flight.join("b", call, live()),
    ];
    expect(gates).toHaveLength(2);
    gates.forEach((gate) => gate.resolve());
    expect(await Promise.all(shared)).toEqual([1, 1, 2]);
    const next = flight.join("a", call, live());
    gates[2]!.resolve();
    expect(await next).toBe(3);
    expect(flight.size).toBe(0);
  });

  test("after never shares a call that began before it was asked, and shares the one that follows", async () => {
    const { gates, call } = calls();
    const flight = new SingleFlight<number>();
    const first = flight.after("a", call, live());
    const later = [flight.after("a", call, live()), flight.after("a", call, live())];
    expect(gates).toHaveLength(1);
    gates[0]!.resolve();
    expect(await first).toBe(1);
    await expect.poll(() => gates.length).toBe(2);
    gates[1]!.resolve();
    expect(await Promise.all(later)).toEqual([2, 2]);
    expect(flight.size).toBe(0);
  });

  test("a call that fails fails for all who share it, and not for those after it", async () => {
    const { gates, call } = calls();
    const flight = new SingleFlight<number>();
    const shared = [flight.after("a", call, live()), flight.join("a", call, live())];
    const after = flight.after("a", call, live());
    gates[0]!.reject(new Error("lost"));
    for (const one of shared) await expect(one).rejects.toThrow("lost");
    await expect.poll(() => gates.length).toBe(2);
    gates[1]!.resolve();
    expect(await after).toBe(2);
  });

  test("one who gives up leaves the call to the others", async () => {
    const { gates, call } = calls();
    const flight = new SingleFlight<number>();
    const leaving = new AbortController();
    const [gone, stays] = [flight.join("a", call, leaving.signal), flight.join("a", call, live())];
    leaving.abort(new Error("left"));
    await expect(gone).rejects.toThrow("left");
    gates[0]!.resolve();
    expect(await stays).toBe(1);
  });
});
