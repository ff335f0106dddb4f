/**
 * Text of HTML and PDF, extracted in threads of their own: the event loop is never blocked, and a document that hangs or
 * eats memory costs one thread.
 *
 * Owns the threads. Invariants:
 * X1 a thread works on one document; it is ended when the document takes too long, eats too much or is cancelled.
 * X2 at most `maxThreads` threads; documents beyond wait in order.
 * X3 idle threads end after `idleMs` and never keep the process alive.
 */
import { Worker } from "node:worker_threads";
import { deferred, type Deferred } from "../../lib/signals.js";
import { FetchFailure } from "../egress/fetch-failure.js";
import type { ExtractAnswer, ExtractedText, ExtractRequest } from "./extracted-text.js";
import { extractWorkerUrl } from "./worker-url.js";

export interface ExtractorOptions {
  /** Threads at once. Default 2. */
  readonly maxThreads?: number;
  /** Longest time for one document, waiting not counted, ms. Default 10,000. */
  readonly timeoutMs?: number;
  /** Longest time to look for the article in a page whose text is already there, ms. Default 3,000. */
  readonly articleTimeoutMs?: number;
  /** Heap of a thread, MiB. Default 256. */
  readonly maxHeapMiB?: number;
  /** How much the process may grow while a document is worked on, MiB: typed arrays are outside the heap. Default 512. */
  readonly maxGrowthMiB?: number;
  /** An idle thread ends after this, ms. Default 5,000. */
  readonly idleMs?: number;
  /** Where the thread's code is. Default: found beside this module. */
  readonly workerUrl?: URL;
}

export interface Extractor {
  /** Rejects with a FetchFailure whose text is public. */
  extract(request: ExtractRequest, signal: AbortSignal): Promise<ExtractedText>;
  /** Threads that exist now. */
  readonly threads: number;
  close(): Promise<void>;
}

const MEMORY_CHECK_MS = 100;

/** Makes a pool of extraction threads; none is started before the first document. */
export function createExtractor(options: ExtractorOptions = {}): Extractor {
  return new ExtractorPool(options);
}

class ExtractorPool implements Extractor {
  readonly #options: Required<Omit<ExtractorOptions, "workerUrl">>;
  #workerUrl: Promise<URL> | undefined;
  readonly #threads = new Set<Worker>();
  readonly #idle = new Map<Worker, NodeJS.Timeout>();
  readonly #waiting: Deferred<void>[] = [];
  #busy = 0;
  #closed = false;

  constructor(options: ExtractorOptions) {
    this.#options = {
      maxThreads: options.maxThreads ?? 2,
      timeoutMs: options.timeoutMs ?? 10_000,
      articleTimeoutMs: options.articleTimeoutMs ?? 3_000,
      maxHeapMiB: options.maxHeapMiB ?? 256,
      maxGrowthMiB: options.maxGrowthMiB ?? 512,
      idleMs: options.idleMs ?? 5_000,
    };
    if (options.workerUrl) this.#workerUrl = Promise.resolve(options.workerUrl);
  }

  get threads(): number {
    return this.#threads.size;
  }

  async extract(request: ExtractRequest, signal: AbortSignal): Promise<ExtractedText> {
    await this.#turn(signal);
    try {
      this.#throwIfOver(signal);
      const worker = this.#takeIdle() ?? (await this.#start());
      return await this.#work(worker, request, signal);
    } finally {
      const next = this.#waiting.shift();
      if (next)
        next.resolve(); // the place is handed over, never free in between
      else this.#busy--;
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const waiter of this.#waiting.splice(0)) waiter.resolve();
    await Promise.all([...this.#threads].map((worker) => worker.terminate()));
  }

  /** Waits until a thread may be used. */
  async #turn(signal: AbortSignal): Promise<void> {
    this.#throwIfOver(signal);
    if (this.#busy < this.#options.maxThreads) {
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

  #takeIdle(): Worker | undefined {
    const [worker, timer] = this.#idle.entries().next().value ?? [];
    if (!worker) return undefined;
    clearTimeout(timer);
    this.#idle.delete(worker);
    return worker;
  }

  async #start(): Promise<Worker> {
    this.#workerUrl ??= extractWorkerUrl();
    const worker = new Worker(await this.#workerUrl, {
      resourceLimits: { maxOldGenerationSizeMb: this.#options.maxHeapMiB, maxYoungGenerationSizeMb: 32 },
      env: {}, // no secrets of the process in a thread that reads strangers' documents
      execArgv: [],
      stdin: false,
      stdout: true, // libraries that print go nowhere
      stderr: true,
    });
    worker.stdout.resume();
    worker.stderr.resume();
    worker.unref();
    worker.on("error", () => undefined); // whoever waits for this thread hears of its exit
    worker.once("exit", () => {
      this.#threads.delete(worker);
      clearTimeout(this.#idle.get(worker));
      this.#idle.delete(worker);
    });
    this.#threads.add(worker);
    return worker;
  }

  async #work(worker: Worker, request: ExtractRequest, signal: AbortSignal): Promise<ExtractedText> {
    const { timeoutMs, articleTimeoutMs, maxGrowthMiB } = this.#options;
    const outcome = deferred<ExtractAnswer>();
    let body: ExtractAnswer | undefined;
    const give = (failure: FetchFailure): void => (body ? outcome.resolve(body) : outcome.reject(failure));
    const onTimeout = (): void =>
      give(new FetchFailure("timeout", `reading it took longer than ${timeoutMs / 1000} s`));
    const onExit = (): void => give(new FetchFailure("unreadable", "reading it took too much memory"));
    const onAbort = (): void => outcome.reject(cancelled());
    let timer = setTimeout(onTimeout, timeoutMs);
    const onMessage = (answer: ExtractAnswer): void => {
      if (answer.kind !== "body") return outcome.resolve(answer);
      body = answer;
      clearTimeout(timer);
      timer = setTimeout(onTimeout, Math.min(articleTimeoutMs, timeoutMs));
    };
    const startRss = process.memoryUsage.rss();
    const memory = setInterval(() => {
      if (process.memoryUsage.rss() - startRss > maxGrowthMiB * 1024 * 1024) onExit();
    }, MEMORY_CHECK_MS);
    signal.addEventListener("abort", onAbort, { once: true });
    worker.on("message", onMessage);
    worker.once("exit", onExit);
    let finished = false;
    try {
      this.#throwIfOver(signal);
      // The bytes are copied into an own buffer that moves to the thread: a pooled one must not be given away.
      const bytes = Uint8Array.from(request.bytes);
      worker.postMessage({ ...request, bytes }, [bytes.buffer]);
      const answer = await outcome.promise;
      finished = answer.kind !== "body";
      if (answer.kind === "unreadable") throw new FetchFailure("unreadable", answer.reason);
      return answer.extracted;
    } finally {
      clearTimeout(timer);
      clearInterval(memory);
      signal.removeEventListener("abort", onAbort);
      worker.off("message", onMessage);
      worker.off("exit", onExit);
      if (finished) this.#rest(worker);
      else void worker.terminate();
    }
  }

  #rest(worker: Worker): void {
    const timer = setTimeout(() => void worker.terminate(), this.#options.idleMs);
    timer.unref();
    this.#idle.set(worker, timer);
  }
}

function cancelled(): FetchFailure {
  return new FetchFailure("cancelled", "it was cancelled");
}
