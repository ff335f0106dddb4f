/** What tabs and the hub say to each other. Plain values: they travel between threads and tabs of one browser. */
import type { WatchResponse } from "../../../gen/turnwire/chat/v1/chat_service_pb.js";
import type { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";

/** How the one stream of this browser is. */
export type LinkStatus =
  | { readonly kind: "connecting" }
  | { readonly kind: "online" }
  | { readonly kind: "offline"; readonly attempt: number; readonly code: ErrorCode }
  /** The server refused, and will until something changes (UNAUTHENTICATED: sign in). */
  | { readonly kind: "refused"; readonly attempt: number; readonly code: ErrorCode };

/** Where a reader stands in a turn. */
export interface TurnPosition {
  readonly turnId: string;
  readonly afterSeq: number;
  readonly logId: string;
}

/** A turn that a tab shows live. */
export interface WatchedTurn extends TurnPosition {
  readonly sessionId: string;
}

/** From a tab to the hub. */
export type TabMessage =
  /** A tab is here. `lock` is the Web Lock that it holds as long as it lives; empty = it has none. */
  | { readonly kind: "hello"; readonly tabId: string; readonly lock: string; readonly token: string }
  /**
   * The sessions that the tab shows, and where it stands in their turns. Replaces what it said before. `resync`: what came
   * meanwhile is not counted, send the turns again from where the tab says it stands.
   */
  | {
      readonly kind: "watch";
      readonly sessionIds: readonly string[];
      readonly turns: readonly WatchedTurn[];
      readonly resync: boolean;
    }
  /** The network may be back: try now. */
  | { readonly kind: "wake" }
  /** The tab is still here. */
  | { readonly kind: "alive" }
  | { readonly kind: "bye" };

/** From the hub to a tab. */
export type HubMessage =
  | { readonly kind: "status"; readonly status: LinkStatus }
  /** The hub does not know this tab (it has forgotten it, or is a new one): say hello. */
  | { readonly kind: "who" }
  /** Part of the stream, as far as it concerns this tab. */
  | { readonly kind: "message"; readonly message: WatchResponse };
