import { useEffect, useRef, type RefObject } from "react";
import type { Conversation } from "../../client/live/conversation.js";

/** How far above what is seen the next older messages are fetched. */
const AHEAD = "1600px 0px 0px 0px";

/** Reads older messages when the reader comes near the beginning. The ref belongs on what stands there. */
export function useOlder(
  session: Conversation | undefined,
  scroller: RefObject<HTMLElement | null>,
  count: number,
  onError: (work: Promise<unknown>) => void,
): RefObject<HTMLButtonElement | null> {
  const beginning = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const element = beginning.current;
    if (!element || !session) return undefined;
    const near = new IntersectionObserver(
      ([entry]) => entry?.isIntersecting && onError(session.loadOlder()),
      { root: scroller.current, rootMargin: AHEAD },
    );
    near.observe(element);
    return () => near.disconnect();
    // with other messages there it is looked at anew
  }, [session, scroller, count, onError]);
  return beginning;
}
