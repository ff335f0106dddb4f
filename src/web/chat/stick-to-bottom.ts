/** Keeps a scrolled column at its end while it grows, unless the reader has gone up. */
import { useCallback, useEffect, useRef, useState, type RefObject } from "react";

/** Closer to the end than this counts as at the end, pixels. */
const NEAR_PX = 80;

export interface StickToBottom {
  /** The element that scrolls. */
  readonly scroller: RefObject<HTMLDivElement | null>;
  /** What grows in it. */
  readonly content: RefObject<HTMLDivElement | null>;
  readonly isAtEnd: boolean;
  readonly toEnd: () => void;
}

/** @param key the conversation: another one begins at its end. */
export function useStickToBottom(key: string): StickToBottom {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const sticks = useRef(true);
  const [isAtEnd, setAtEnd] = useState(true);

  const toEnd = useCallback(() => {
    const box = scroller.current;
    if (!box) return;
    sticks.current = true;
    setAtEnd(true);
    box.scrollTop = box.scrollHeight;
  }, []);

  useEffect(() => {
    const box = scroller.current!;
    let lastTop = box.scrollTop;
    const onScroll = (): void => {
      const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX;
      // growth alone never lets go; only the reader's own way up does
      if (atEnd) sticks.current = true;
      else if (box.scrollTop < lastTop) sticks.current = false;
      lastTop = box.scrollTop;
      setAtEnd(atEnd || sticks.current);
    };
    const follow = new ResizeObserver(() => {
      if (sticks.current) box.scrollTop = box.scrollHeight;
      else onScroll();
    });
    box.addEventListener("scroll", onScroll, { passive: true });
    follow.observe(content.current!);
    follow.observe(box);
    return () => {
      box.removeEventListener("scroll", onScroll);
      follow.disconnect();
    };
  }, []);

  useEffect(toEnd, [key, toEnd]);
  return { scroller, content, isAtEnd, toEnd };
}
