/**
 * Text of HTML and PDF, extracted in processes of their own: the event loop is never blocked, and a document that hangs,
 * eats memory or brings the parser down costs one process. (A thread is no such wall: some failed allocations of a thread
 * end the whole process, its own heap limit notwithstanding.)
 *
 * Owns the processes. Invariants:
 * X1 a process works on one document; it is ended when the document takes too long, eats too much or is cancelled.
 * X2 at most `maxProcesses`; documents beyond wait in order.
 * X3 idle processes end after `idleMs`, none keeps this process alive or outlives it.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { type Deferred, deferred } from "../lib/signals.js";
import { FetchFailure } from "../egress/fetch-failure.js";
import { extractChildFile } from "./child-file.js";
import type { ExtractAnswer, ExtractedText, ExtractRequest } from "./extracted-text.js";

export interface ExtractorOptions {
  /** Processes at once. Default 2. */
  readonly maxProcesses?: number;
  /** Longest time for one document, waiting not counted, ms. Default 10,000. */
  readonly timeoutMs?: number;
  /** Longest time to look for the article in a page whose text is already there, ms. Default 3,000. */
  readonly articleTimeoutMs?: number;
  /** Heap of a process, MiB. Default 256. */
  readonly maxHeapMiB?: number;
  /** All memory of a process, MiB: what documents unpack to is outside the heap. Default 512. */
  readonly maxMiB?: number;
  /** An idle process ends after this, ms. Default 4,000. */
  readonly idleMs?: number;
}

export interface Extractor {
  /** Rejects with a FetchFailure whose text is public. */
  extract(request: ExtractRequest, signal: AbortSignal): Promise<ExtractedText>;
  /** Process ids that exist now. */
  readonly processes: readonly number[];
  /** Ends all processes; resolves when they are gone. */
  close(): Promise<void>;
}

/** Makes a pool of extraction processes; none is started before the first document. */
export function createExtractor(options: ExtractorOptions = {}): Extractor {
  return new ExtractorPool(options);
}

class ExtractorPool implements Extractor {
  readonly #options: Required<ExtractorOptions>;
  #childFile: Promise<string> | undefined;
  readonly #children = new Set<ChildProcess>();
  readonly #idle = new Map<ChildProcess, NodeJS.Timeout>();
  readonly #waiting: Deferred<void>[] = [];
  #busy = 0;
  #closed = false;

  constructor(options: ExtractorOptions) {
    this.#options = {
      maxProcesses: options.maxProcesses ?? 2,
      timeoutMs: options.timeoutMs ?? 10_000,
      articleTimeoutMs: options.articleTimeoutMs ?? 3_000,
      maxHeapMiB: options.maxHeapMiB ?? 256,
      maxMiB: options.maxMiB ?? 512,
      idleMs: options.idleMs ?? 4_000,
    };
  }

  get processes(): readonly number[] {
    return [...this.#children].flatMap(({ pid }) => (pid === undefined ? [] : [pid]));
  }

  async extract(request: ExtractRequest, signal: AbortSignal): Promise<ExtractedText> {
    await this.#turn(signal);
    try {
      this.#throwIfOver(signal);
      const child = this.#takeIdle() ?? (await this.#start());
      return await this.#work(child, request, signal);
    } finally {
      const next = this.#waiting.shift();
      if (next)
        next.resolve(); // the place is handed over, never free in between
      else this.#busy--;
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const waiter of this.#waiting) waiter.resolve();
    const exits = [...this.#children].map((child) => once(child, "exit"));
    for (const child of this.#children) child.kill("SIGKILL");
    await Promise.all(exits);
  }

  /** Waits until a process may be used. */
  async #turn(signal: AbortSignal): Promise<void> {
    this.#throwIfOver(signal);
    if (this.#busy < this.#options.maxProcesses) {
      this.#busy++;
      return;
    }
    const waiter = deferred();
    this.#waiting.push(waiter);
    const onAbort = (): void => {
      const index = this.#waiting.indexOf(waiter);
      if (index >= 0) this.#waiting.splice(index, 1);
      waiter.reject(cancelled());
    };
    signal.addEventListener("abort", onAbort, { once: true });
    await waiter.promise.finally(() => signal.removeEventListener("abort", onAbort));
  }

  #throwIfOver(signal: AbortSignal): void {
    if (signal.aborted || this.#closed) throw cancelled();
  }

  #takeIdle(): ChildProcess | undefined {
    const [child, timer] = this.#idle.entries().next().value ?? [];
    if (!child) return undefined;
    clearTimeout(timer);
    this.#idle.delete(child);
    return child;
  }

  async #start(): Promise<ChildProcess> {
    const file = await (this.#childFile ??= extractChildFile());
    const child = fork(file, [String(this.#options.maxMiB)], {
      // No environment: no secret of this process is within reach of what reads strangers' documents.
      env: {},
      execArgv: [`--max-old-space-size=${this.#options.maxHeapMiB}`],
      serialization: "advanced",
      stdio: ["ignore", "ignore", "ignore", "ipc"],
    });
    child.unref();
    child.channel?.unref();
    child.on("error", () => {
      if (child.pid === undefined) this.#children.delete(child); // it never started; whoever sends to it hears of that
    });
    child.once("exit", () => {
      this.#children.delete(child);
      clearTimeout(this.#idle.get(child));
      this.#idle.delete(child);
    });
    this.#children.add(child);
    return child;
  }

  async #work(child: ChildProcess, request: ExtractRequest, signal: AbortSignal): Promise<ExtractedText> {
    const { timeoutMs, articleTimeoutMs } = this.#options;
    const outcome = deferred<ExtractAnswer>();
    let body: ExtractAnswer | undefined;
    const give = (failure: FetchFailure): void => (body ? outcome.resolve(body) : outcome.reject(failure));
    const onTimeout = (): void =>
      give(new FetchFailure("timeout", `reading it took longer than ${timeoutMs / 1000} s`));
    const onExit = (): void => give(new FetchFailure("too_large", "reading it took too much memory"));
    const onAbort = (): void => outcome.reject(cancelled());
    let timer = setTimeout(onTimeout, timeoutMs);
    const onMessage = (message: unknown): void => {
      const answer = message as ExtractAnswer; // from our own child
      if (answer.kind !== "body") return outcome.resolve(answer);
      body = answer;
      clearTimeout(timer);
      timer = setTimeout(onTimeout, Math.min(articleTimeoutMs, timeoutMs));
    };
    signal.addEventListener("abort", onAbort, { once: true });
    child.on("message", onMessage);
    child.once("exit", onExit);
    let finished = false;
    try {
      this.#throwIfOver(signal);
      child.send(request, (error) => error && onExit());
      const answer = await outcome.promise;
      finished = answer.kind !== "body";
      if (answer.kind === "unreadable") throw new FetchFailure(answer.why, answer.reason);
      return answer.extracted;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      child.off("message", onMessage);
      child.off("exit", onExit);
      if (finished && child.connected) this.#rest(child);
      else child.kill("SIGKILL");
    }
  }

  #rest(child: ChildProcess): void {
    const timer = setTimeout(() => child.kill("SIGKILL"), this.#options.idleMs);
    timer.unref();
    this.#idle.set(child, timer);
  }
}

function cancelled(): FetchFailure {
  return new FetchFailure("cancelled", "it was cancelled");
}
