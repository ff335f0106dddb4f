/**
 * Where a scrolled column stands while it changes: at its end as long as the reader is there, else on what the reader
 * reads, whatever grows, shrinks or is put in above it.
 */
import { useCallback, useEffect, useRef, useState, type RefObject } from "react";

/** Closer to the end than this counts as at the end, pixels. */
const NEAR_PX = 80;
/** Levels below the column in which the thing that is read is looked for. */
const MAX_DEPTH = 8;
/** An exchange that ends within this share of what is seen is not what is read. */
const TOP_SHARE = 0.25;

export interface StickToBottom {
  /** The element that scrolls. */
  readonly scroller: RefObject<HTMLDivElement | null>;
  /** What grows in it. */
  readonly content: RefObject<HTMLDivElement | null>;
  readonly isAtEnd: boolean;
  readonly toEnd: () => void;
  /** Brings an element of the column to the top, and stays there. */
  readonly show: (element: Element) => void;
}

interface Anchor {
  readonly element: Element;
  /** Pixels below the beginning of the column: where it is whatever is scrolled. */
  readonly place: number;
}

/** @param key the conversation: another one begins at its end. */
export function useStickToBottom(key: string): StickToBottom {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const sticks = useRef(true);
  const anchors = useRef<readonly Anchor[]>([]);
  const [isAtEnd, setAtEnd] = useState(true);

  const toEnd = useCallback(() => {
    const box = scroller.current;
    if (!box) return;
    sticks.current = true;
    anchors.current = [];
    setAtEnd(true);
    box.scrollTop = box.scrollHeight;
  }, []);

  const show = useCallback((element: Element) => {
    const box = scroller.current;
    if (!box) return;
    sticks.current = false;
    element.scrollIntoView({ block: "start" });
    anchors.current = [{ element, place: placeOf(box, element) }];
  }, []);

  useEffect(() => {
    const box = scroller.current!;
    const column = content.current!;
    let lastTop = box.scrollTop;
    const onScroll = (): void => {
      const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX;
      // growth alone never lets go; only the reader's own way up does
      if (atEnd) sticks.current = true;
      else if (box.scrollTop < lastTop) sticks.current = false;
      if (sticks.current) anchors.current = [];
      else stay();
      lastTop = box.scrollTop;
      setAtEnd(atEnd || sticks.current);
    };
    /** Takes back by how much that which was read has moved in the column since. */
    const stay = (): void => {
      const anchor = anchors.current.findLast(({ element }) => column.contains(element)); // the innermost still there
      const moved = anchor ? placeOf(box, anchor.element) - anchor.place : 0;
      if (Math.abs(moved) >= 1) box.scrollTop += moved;
      anchors.current = anchorsIn(box, column);
    };
    const follow = new ResizeObserver(() => {
      if (sticks.current) box.scrollTop = box.scrollHeight;
      else onScroll();
    });
    box.addEventListener("scroll", onScroll, { passive: true });
    follow.observe(column);
    follow.observe(box);
    return () => {
      box.removeEventListener("scroll", onScroll);
      follow.disconnect();
    };
  }, []);

  useEffect(toEnd, [key, toEnd]);
  return { scroller, content, isAtEnd, toEnd, show };
}

/** What is read: the exchange at the top of what is seen, the answer in it, its paragraph. */
function anchorsIn(box: Element, column: Element): Anchor[] {
  const anchors: Anchor[] = [];
  const { top } = box.getBoundingClientRect();
  let element = firstBelow(column.children, top);
  // of an exchange that ends there only the end is seen, and how high it is may be found out yet
  if (element && (element.matches("button") || bottomOf(element) < top + box.clientHeight * TOP_SHARE))
    element = element.nextElementSibling ?? element;
  while (element && anchors.length < MAX_DEPTH) {
    anchors.push({ element, place: placeOf(box, element) });
    element = element.getBoundingClientRect().top < top ? firstBelow(element.children, top) : undefined;
  }
  return anchors;
}

/** The first of the elements that ends below a height; they stand one below the other. */
function firstBelow(elements: HTMLCollection, height: number): Element | undefined {
  let low = 0;
  let high = elements.length;
  while (low < high) {
    const at = (low + high) >> 1;
    if (bottomOf(elements[at]!) > height) high = at;
    else low = at + 1;
  }
  return elements[low];
}

function bottomOf(element: Element): number {
  return element.getBoundingClientRect().bottom;
}

function placeOf(box: Element, element: Element): number {
  return element.getBoundingClientRect().top + box.scrollTop;
}
