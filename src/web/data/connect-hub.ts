/**
 * Finds the hub: a SharedWorker; where there is none, the tab that holds a Web Lock, reached by BroadcastChannel; where that
 * is missing too, a hub of this tab's own. Owns the tab's lock, by which the hub learns that the tab is gone. Each account
 * has a hub of its own.
 */
import { HubLink } from "../../client/live/hub-link.js";
import type { HubMessage, TabMessage } from "../../client/live/hub-messages.js";
import type { HubConnection } from "../../client/live/watch-hub.js";
import { newRequestId } from "../../client/request-id.js";
import type { Account } from "./account.js";
import { createBrowserHub } from "./browser-hub.js";

/** Address of hub-worker.ts as it was built (scripts/page-plugins.mjs). */
declare const __HUB_WORKER_URL__: string;

const ALIVE_MS = 60_000;

/** Connects this tab; the link lives as long as the page. */
export async function connectHub({ token, name }: Account): Promise<HubLink> {
  const tabId = newRequestId();
  const lock = await holdLock(`turnwire-tab-${tabId}`);
  const wire = { post: (_message: TabMessage): void => undefined };
  const link = new HubLink({ tabId, lock, token, post: (message) => wire.post(message) });
  wire.post = openWire(`turnwire-hub-${name}`, tabId, link);
  link.hello();
  window.addEventListener("pagehide", () => link.bye());
  window.addEventListener("pageshow", (event) => event.persisted && link.hello());
  window.addEventListener("online", () => link.wake());
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible" && link.status.get().kind === "offline") link.wake();
  });
  if (!lock) setInterval(() => link.alive(), ALIVE_MS);
  return link;
}

/** Takes a lock for as long as the tab lives. The name, or "" where there are no locks (a page without TLS off this machine). */
function holdLock(name: string): Promise<string> {
  if (!navigator.locks) return Promise.resolve("");
  return new Promise((resolve) => {
    void navigator.locks.request(name, () => {
      resolve(name);
      return new Promise<never>(() => undefined);
    });
  });
}

function openWire(hub: string, tabId: string, link: HubLink): (message: TabMessage) => void {
  if (typeof SharedWorker === "function") return toWorker(hub, link);
  if (navigator.locks && typeof BroadcastChannel === "function") return toElectedTab(hub, tabId, link);
  return toOwnHub(link);
}

function toWorker(hub: string, link: HubLink): (message: TabMessage) => void {
  const worker = new SharedWorker(__HUB_WORKER_URL__, { type: "module", name: hub });
  let own: ((message: TabMessage) => void) | undefined;
  worker.port.onmessage = ({ data }: MessageEvent<HubMessage>) => link.receive(data);
  worker.onerror = () => {
    if (own) return;
    own = toOwnHub(link); // the worker could not be loaded: better a stream of our own than none
    link.hello();
  };
  return (message) => (own ? own(message) : worker.port.postMessage(message));
}

function toOwnHub(link: HubLink): (message: TabMessage) => void {
  const connection = createBrowserHub().connect((message) => link.receive(message));
  return (message) => connection.receive(message);
}

type ChannelMessage =
  | { readonly to: "hub"; readonly tabId: string; readonly message: TabMessage }
  | { readonly to: "tab"; readonly tabId: string; readonly message: HubMessage };

/** Every tab waits for the lock; whoever gets it is the hub until it closes, and asks the others who they are. */
function toElectedTab(name: string, tabId: string, link: HubLink): (message: TabMessage) => void {
  const channel = new BroadcastChannel(name);
  const send = (message: ChannelMessage): void => channel.postMessage(message);
  let local: ((message: TabMessage) => void) | undefined;
  let serve: ((from: string, message: TabMessage) => void) | undefined;
  channel.onmessage = ({ data }: MessageEvent<ChannelMessage>) => {
    if (data.to === "hub") serve?.(data.tabId, data.message);
    else if (data.tabId === tabId || data.tabId === "") link.receive(data.message);
  };
  void navigator.locks.request(name, () => {
    const hub = createBrowserHub();
    const connections = new Map<string, HubConnection>();
    serve = (from, message) => {
      let connection = connections.get(from);
      if (!connection) {
        connection = hub.connect((reply) => send({ to: "tab", tabId: from, message: reply }));
        connections.set(from, connection);
      }
      connection.receive(message);
      if (message.kind === "bye") connections.delete(from);
    };
    const mine = hub.connect((reply) => link.receive(reply));
    local = (message) => mine.receive(message);
    link.hello();
    send({ to: "tab", tabId: "", message: { kind: "who" } });
    return new Promise<never>(() => undefined);
  });
  return (message) => (local ? local(message) : send({ to: "hub", tabId, message }));
}
