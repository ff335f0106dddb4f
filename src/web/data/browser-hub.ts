import { createClient } from "@connectrpc/connect";
import { ChatService } from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import { systemClock } from "../../lib/clock.js";
import { mapErrors } from "../../client/error-transport.js";
import { Watcher } from "../../client/live/watcher.js";
import { WatchHub } from "../../client/live/watch-hub.js";
import { newRequestId } from "../../client/request-id.js";
import { createPageTransport } from "./transport.js";

/** A hub over this origin's service. Runs in a SharedWorker, or in the tab that was elected. */
export function createBrowserHub(): WatchHub {
  const clientId = newRequestId();
  return new WatchHub({
    clock: systemClock,
    watch: (token, options) =>
      new Watcher({
        ...options,
        api: createClient(ChatService, mapErrors(createPageTransport(() => token))),
        clock: systemClock,
        clientId,
      }),
    // granted once the tab that holds it is gone
    lockFree: navigator.locks ? (lock) => navigator.locks.request(lock, () => undefined) : undefined,
  });
}
