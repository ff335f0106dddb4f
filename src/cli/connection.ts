import { connect as connectHttp2 } from "node:http2";
import type { Interceptor, Transport } from "@connectrpc/connect";
import { createConnectTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { CliError, ExitCode } from "./exit-codes.js";

const PROBE_TIMEOUT_MS = 2_000;

/** A transport to one server, and how to let go of its connections. */
export interface Connection {
  readonly transport: Transport;
  close(): void;
}

/** Connects to a Turnwire server: HTTP/2 (in clear text by prior knowledge) where the server speaks it, else HTTP/1.1. */
export async function openConnection(url: string, token: string | undefined): Promise<Connection> {
  const baseUrl = parseUrl(url);
  const interceptors = token ? [bearer(token)] : [];
  if (!(await speaksHttp2(baseUrl))) {
    return {
      transport: createConnectTransport({ baseUrl, httpVersion: "1.1", interceptors }),
      close: () => undefined,
    };
  }
  const sessionManager = new Http2SessionManager(baseUrl, { pingIntervalMs: 15_000, pingTimeoutMs: 10_000 });
  return {
    transport: createConnectTransport({ baseUrl, httpVersion: "2", interceptors, sessionManager }),
    close: () => sessionManager.abort(),
  };
}

function parseUrl(url: string): string {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new CliError(ExitCode.USAGE, `not an http or https address: ${url}`);
  }
  return url.replace(/\/+$/, "");
}

function bearer(token: string): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", `Bearer ${token}`);
    return next(request);
  };
}

/**
 * Whether the server's first words are HTTP/2's. A server that is not there counts as one that speaks it: the call that
 * follows will say what is wrong.
 */
function speaksHttp2(baseUrl: string): Promise<boolean> {
  return new Promise((resolve) => {
    const session = connectHttp2(baseUrl);
    const answer = (speaks: boolean): void => {
      clearTimeout(timer);
      session.destroy();
      resolve(speaks);
    };
    const timer = setTimeout(() => answer(false), PROBE_TIMEOUT_MS);
    session.once("remoteSettings", () => answer(true));
    session.once("close", () => answer(false));
    session.on("error", (error: NodeJS.ErrnoException) =>
      answer(error.syscall === "connect" || error.syscall === "getaddrinfo"),
    );
  });
}
