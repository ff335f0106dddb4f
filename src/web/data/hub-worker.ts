/** The SharedWorker: the hub of all tabs that were loaded from the same build of the page. */
import type { TabMessage } from "../../client/live/hub-messages.js";
import { createBrowserHub } from "./browser-hub.js";

const hub = createBrowserHub();

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = ({ ports: [port] }) => {
  const connection = hub.connect((message) => port!.postMessage(message));
  port!.onmessage = ({ data }: MessageEvent<TabMessage>) => connection.receive(data);
};
