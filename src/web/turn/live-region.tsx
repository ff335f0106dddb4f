/** What a screen reader hears of a turn that is being written. */
import { useEffect, useRef, useState, type ReactNode } from "react";
import type { TurnView } from "../../client/view.js";
import { ANNOUNCE_INTERVAL_MS, Announcer } from "./announcer.js";

/** A polite live region: sentences, not tokens. Shows nothing. */
export function LiveRegion({ view }: { readonly view: TurnView }): ReactNode {
  const [announcer] = useState(() => {
    const made = new Announcer();
    made.skip(view);
    return made;
  });
  const newest = useRef(view);
  const [text, setText] = useState("");
  const running = view.progress === "running";
  useEffect(() => {
    newest.current = view;
  }, [view]);
  useEffect(() => {
    const tell = (): void => {
      const said = announcer.next(newest.current);
      if (said) setText(said);
    };
    if (running) {
      const timer = setInterval(tell, ANNOUNCE_INTERVAL_MS);
      return () => clearInterval(timer);
    }
    const last = setTimeout(tell); // after the view above was noted
    return () => clearTimeout(last);
  }, [announcer, running]);
  return (
    <div className="hidden-text" role="log" aria-live="polite" aria-atomic="true">
      {text}
    </div>
  );
}
