import type { SessionItem } from "../../client/live/session-list.js";

export interface DayGroup {
  readonly label: string;
  readonly items: readonly SessionItem[];
}

const DAY_MS = 86_400_000;

/** Puts sessions, last changed first, under the names of their times. */
export function groupByDay(items: readonly SessionItem[], now: Date): DayGroup[] {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const labelOf = ({ updateTimeMs }: SessionItem): string => {
    if (updateTimeMs >= midnight) return "Today";
    if (updateTimeMs >= midnight - DAY_MS) return "Yesterday";
    if (updateTimeMs >= midnight - 6 * DAY_MS) return "Last seven days";
    return "Earlier";
  };
  const groups = new Map<string, SessionItem[]>();
  for (const item of items) {
    const label = labelOf(item);
    const group = groups.get(label) ?? [];
    group.push(item);
    groups.set(label, group);
  }
  return [...groups].map(([label, group]) => ({ label, items: group }));
}
