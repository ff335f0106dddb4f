import { createPeerAuthenticator } from "../edge/auth.js";
import type { Authenticate } from "../lib/rpc/service-binding.js";
import { ConfigError, isLoopback, type Config } from "./config.js";

/** The door of the llm and tool peers: TURNWIRE_PEER_TOKEN, demanded off loopback. */
export function peerAuthenticator(config: Config): Authenticate {
  try {
    return createPeerAuthenticator({ token: config.peerToken, loopback: isLoopback(config.host) });
  } catch (error) {
    throw new ConfigError((error as Error).message);
  }
}
