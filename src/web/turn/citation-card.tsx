/** What a number stands for, shown while the mouse rests on it. Screen readers hear the number's own name instead. */
import { useEffect, useRef, useState, type CSSProperties, type PointerEvent, type ReactNode } from "react";
import { createPortal } from "react-dom";
import type { Document } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { placeOf, shorten } from "./document-list.js";

/** How long a mouse rests before the card opens, and how long it may be away before it closes. */
const OPEN_MS = 250;
const CLOSE_MS = 150;
const CARD_WIDTH_PX = 320;
const EDGE_PX = 12;

/** What the element with the number listens to. */
export interface CardTrigger {
  readonly onPointerEnter: (event: PointerEvent<HTMLElement>) => void;
  readonly onPointerLeave: () => void;
}

/** A card for a document, and the listeners that open and close it. A touch opens the source itself. */
export function useCitationCard(
  document: Document | undefined,
  onOpen: () => void,
): readonly [ReactNode, CardTrigger] {
  const [anchor, setAnchor] = useState<DOMRect>();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const later = (ms: number, rect: DOMRect | undefined): void => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setAnchor(rect), ms);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (!anchor) return undefined;
    const close = (): void => setAnchor(undefined);
    const onKey = ({ key }: KeyboardEvent): void => void (key === "Escape" && close());
    window.addEventListener("keydown", onKey);
    window.addEventListener("scroll", close, true);
    return () => {
      window.removeEventListener("keydown", onKey);
      window.removeEventListener("scroll", close, true);
    };
  }, [anchor]);
  const card = anchor && document && (
    <div
      className="cite-card"
      aria-hidden="true"
      style={placeFor(anchor)}
      onPointerEnter={() => clearTimeout(timer.current)}
      onPointerLeave={() => later(CLOSE_MS, undefined)}
      onClick={() => {
        setAnchor(undefined);
        onOpen();
      }}
    >
      <strong>{document.title || document.url || document.documentId}</strong>
      {placeOf(document) && <span className="cite-card-place">{placeOf(document)}</span>}
      {document.snippet && <span className="cite-card-text">{shorten(document.snippet)}</span>}
      <span className="cite-card-open">Open the source</span>
    </div>
  );
  const trigger: CardTrigger = {
    onPointerEnter: ({ pointerType, currentTarget }) => {
      if (pointerType === "mouse") later(OPEN_MS, currentTarget.getBoundingClientRect());
    },
    onPointerLeave: () => later(CLOSE_MS, undefined),
  };
  return [card && createPortal(card, window.document.body), trigger];
}

/** Above the number where there is room, else below it; never beyond the window. */
function placeFor({ left, top, bottom }: DOMRect): CSSProperties {
  const x = Math.max(EDGE_PX, Math.min(left - 24, window.innerWidth - CARD_WIDTH_PX - EDGE_PX));
  return top > window.innerHeight / 2
    ? { left: x, bottom: window.innerHeight - top + 6 }
    : { left: x, top: bottom + 6 };
}
