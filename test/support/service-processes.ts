/** The services as processes of their own, and the two ways to ask whether one is ready. */
import { fileURLToPath } from "node:url";
import path from "node:path";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { Health, HealthCheckResponse_ServingStatus } from "../../gen/grpc/health/v1/health_pb.js";
import { silentLogger } from "../../src/lib/log.js";
import { createGrpcClient } from "../../src/lib/rpc/grpc-client.js";
import { startTurnwire, type StartOptions, type TurnwireProcess } from "./turnwire-process.js";

const root = fileURLToPath(new URL("../..", import.meta.url));

export type ServiceName = "all-in-one" | "chat" | "llm" | "tool";

/** What node runs for `npm run start:<name>`. */
export function programOf(name: ServiceName): string {
  return path.join(root, `dist/src/main/${name}.js`);
}

/** Starts one service and waits until it says that it is ready. */
export function startService(name: ServiceName, options: StartOptions): Promise<TurnwireProcess> {
  return startTurnwire({ ...options, program: [programOf(name)] });
}

/** What each door says: GET /readyz, grpc.health on the shared port, grpc.health on the native port. */
export interface Doors {
  readonly readyz: number;
  readonly shared: string;
  readonly native: string;
}

export const READY: Doors = { readyz: 200, shared: "SERVING", native: "SERVING" };
export const NOT_READY: Doors = { readyz: 503, shared: "NOT_SERVING", native: "NOT_SERVING" };

export async function askDoors(
  server: Pick<TurnwireProcess, "httpUrl" | "grpcAddress">,
  service = "turnwire.chat.v1.ChatService",
): Promise<Doors> {
  const shared = createClient(
    Health,
    createConnectTransport({ baseUrl: server.httpUrl, httpVersion: "1.1" }),
  );
  const [readyz, overHttp, native] = await Promise.all([
    fetch(`${server.httpUrl}/readyz`).then(async (response) => {
      await response.text();
      return response.status;
    }),
    shared.check({ service }),
    askNative(server.grpcAddress, service),
  ]);
  return { readyz, shared: nameOf(overHttp.status), native };
}

/** grpc.health of a native gRPC port, without a token. */
export async function askNative(address: string, service: string): Promise<string> {
  const client = createGrpcClient(Health, { addresses: address, logger: silentLogger });
  try {
    const { status } = await client.unary("check", { service }, { signal: AbortSignal.timeout(10_000) });
    return nameOf(status);
  } finally {
    client.close();
  }
}

function nameOf(status: HealthCheckResponse_ServingStatus): string {
  return HealthCheckResponse_ServingStatus[status];
}
