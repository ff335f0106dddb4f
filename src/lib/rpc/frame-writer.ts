/**
 * Writes the frames of one server stream to a sink, with back-pressure and a stall guard, whatever the transport.
 * Owns: the count of bytes that wait in this process for the reader, and the stall timer.
 *
 * W1: at most maxBufferedBytes plus one frame wait here; the handler is not asked for more until half of it left.
 * W2: a reader that takes nothing for stallMs while bytes wait is cut: `onStall`, once.
 * W3: every wait ends when `signal` aborts.
 */

/** Extra weight of a frame, so that tiny frames are bounded too. */
const FRAME_OVERHEAD = 128;

export interface FrameWriterOptions {
  readonly maxBufferedBytes: number;
  readonly stallMs: number;
  readonly signal: AbortSignal;
  /** Hands bytes to the transport; `taken` is called when they left this process. */
  readonly write: (bytes: Uint8Array, taken: () => void) => void;
  readonly onStall: (facts: { readonly stalledMs: number; readonly bufferedBytes: number }) => void;
}

export class FrameWriter {
  readonly #options: FrameWriterOptions;
  #buffered = 0;
  #lastTakenMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #resume: (() => void) | undefined;
  #closed = false;

  constructor(options: FrameWriterOptions) {
    this.#options = options;
    options.signal.addEventListener("abort", () => this.#resume?.(), { once: true });
  }

  /** Bytes handed to the transport that have not left this process. */
  get bufferedBytes(): number {
    return this.#buffered;
  }

  /** Writes one frame. Returns a promise only if the caller has to wait before the next one (W1). */
  write(bytes: Uint8Array): Promise<void> | undefined {
    const weight = bytes.length + FRAME_OVERHEAD;
    if (this.#buffered === 0) this.#lastTakenMs = performance.now();
    this.#buffered += weight;
    this.#options.write(bytes, () => this.#taken(weight));
    if (this.#buffered > 0 && !this.#timer && !this.#closed) this.#watch(this.#options.stallMs);
    if (this.#buffered <= this.#options.maxBufferedBytes) return undefined;
    return this.#untilRoom();
  }

  /** Resolves when everything left, or when the signal aborts. The stall guard stays on meanwhile. */
  async drained(): Promise<void> {
    while (this.#buffered > 0 && !this.#options.signal.aborted) await this.#nextTaken();
  }

  /** Stops the stall guard. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  async #untilRoom(): Promise<void> {
    while (this.#buffered > this.#options.maxBufferedBytes / 2 && !this.#options.signal.aborted)
      await this.#nextTaken();
  }

  #nextTaken(): Promise<void> {
    return new Promise((resolve) => (this.#resume = resolve));
  }

  #taken(weight: number): void {
    this.#buffered -= weight;
    this.#lastTakenMs = performance.now();
    this.#resume?.();
  }

  // One lazy timer per stream: it looks whether anything was taken since, and sets itself again for the rest.
  #watch(delayMs: number): void {
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        if (this.#closed || this.#buffered === 0) return;
        const idleMs = performance.now() - this.#lastTakenMs;
        if (idleMs < this.#options.stallMs) {
          this.#watch(this.#options.stallMs - idleMs);
          return;
        }
        this.close();
        this.#options.onStall({ stalledMs: Math.round(idleMs), bufferedBytes: this.#buffered });
      },
      Math.max(1, delayMs),
    );
    this.#timer.unref();
  }
}
