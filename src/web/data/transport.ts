import type { Interceptor, Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";

/** Binary Connect to the server that served the page, with the bearer token of the moment. */
export function createPageTransport(token: () => string): Transport {
  const authorize: Interceptor = (next) => (request) => {
    const bearer = token();
    if (bearer) request.header.set("authorization", `Bearer ${bearer}`);
    return next(request);
  };
  return createConnectTransport({
    baseUrl: self.location.origin,
    useBinaryFormat: true,
    interceptors: [authorize],
  });
}
