/** How much there is to an exchange. Pure. */
import type { ExchangeView } from "../../client/live/conversation.js";

const CHARS_PER_LINE = 80;
const LINE_PX = 28;
const FRAME_PX = 140;

/** Characters to be drawn. */
export function charsOf({ user, turn }: ExchangeView): number {
  const lanes = turn?.lanes.map(({ groups }) =>
    groups.reduce((sum, group) => sum + ("text" in group ? group.text.length : 2_000), 0),
  );
  return (user.input?.text.length ?? 0) + Math.max(0, ...(lanes ?? []));
}

/** About how high it will be, pixels. */
export function estimatedHeight(exchange: ExchangeView): number {
  return FRAME_PX + Math.ceil(charsOf(exchange) / CHARS_PER_LINE) * LINE_PX;
}
