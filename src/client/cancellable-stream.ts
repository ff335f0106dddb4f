import { abortable } from "../lib/signals.js";
import { clientError, toClientError } from "./errors.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";

/** Aborts `controller` when `signal` does; the returned function undoes the link. */
export function linkAbort(signal: AbortSignal | undefined, controller: AbortController): () => void {
  if (!signal) return () => undefined;
  const onAbort = (): void => controller.abort(signal.reason);
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  return () => signal.removeEventListener("abort", onAbort);
}

/**
 * A server stream whose call ends with the loop that reads it: `break`, `return` and a thrown error cancel the RPC at once,
 * and nothing is delivered after an abort. (The generated client of Connect 2.1 leaves the RPC running.) Errors arrive as
 * TurnwireClientError.
 */
export function cancellableStream<T>(
  open: (signal: AbortSignal) => AsyncIterable<T>,
  signal?: AbortSignal,
): AsyncIterable<T> {
  return { [Symbol.asyncIterator]: () => cancelOnReturn(open, signal) };
}

function cancelOnReturn<T>(
  open: (signal: AbortSignal) => AsyncIterable<T>,
  signal: AbortSignal | undefined,
): AsyncIterator<T, undefined> {
  const controller = new AbortController();
  const unlink = linkAbort(signal, controller);
  const close = (): void => {
    unlink();
    controller.abort(clientError(ErrorCode.CANCELLED, "the reader left"));
  };
  let source: AsyncIterator<T> | undefined;
  let left = false;
  return {
    async next() {
      if (left) return { done: true, value: undefined };
      try {
        source ??= open(controller.signal)[Symbol.asyncIterator]();
        const step = await abortable(source.next(), controller.signal);
        if (!step.done) return step;
        left = true;
        unlink();
        return { done: true, value: undefined };
      } catch (thrown) {
        if (left) return { done: true, value: undefined };
        left = true;
        unlink();
        throw signal?.aborted
          ? clientError(ErrorCode.CANCELLED, undefined, signal.reason)
          : toClientError(thrown);
      }
    },
    return() {
      left = true;
      close();
      return Promise.resolve({ done: true, value: undefined });
    },
  };
}
