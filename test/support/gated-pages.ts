/** A web page for open_url that answers only when told, and the configuration file that lets open_url reach it. */
import { writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { deferred } from "../../src/lib/signals.js";

export interface WebPages {
  readonly url: string;
  /** For TURNWIRE_CONFIG. */
  readonly configFile: string;
  /** How often the page was asked for. */
  readonly requests: number;
  /** Resolves when the page was asked for the first time. */
  readonly requested: Promise<void>;
  /** Requests wait from now on. */
  hold(): void;
  close(): Promise<void>;
}

const PAGE =
  "<html><head><title>A page</title></head><body><article><h1>A page</h1><p>The page says this and that, at some length, so that it reads as an article of its own.</p></article></body></html>";

/** @param folder where the configuration file goes. */
export async function startWebPages(folder: string): Promise<WebPages> {
  let requests = 0;
  let held = false;
  const requested = deferred();
  const answer = (response: ServerResponse): void => {
    response.setHeader("content-type", "text/html; charset=utf-8");
    response.end(PAGE);
  };
  const server = createServer((_request, response) => {
    requests++;
    requested.resolve();
    if (!held) answer(response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const configFile = path.join(folder, "config.yaml");
  writeFileSync(configFile, `tools:\n  openUrl:\n    allowHosts: ["127.0.0.1:${port}"]\n`);
  return {
    url: `http://127.0.0.1:${port}/page`,
    configFile,
    get requests() {
      return requests;
    },
    requested: requested.promise,
    hold() {
      held = true;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
