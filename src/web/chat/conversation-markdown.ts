/** Conversations as Markdown, to be pasted or kept elsewhere. Pure. */
import type { ExchangeView } from "../../client/live/conversation.js";
import type { LaneView } from "../../client/view.js";

/** The answer as Markdown, without what the model did on the way. */
export function answerText({ groups }: LaneView): string {
  return groups
    .flatMap((group) => (group.kind === "answer" || group.kind === "report" ? [group.text] : []))
    .join("\n\n");
}

/** What is shown of a conversation: each question, each model's answer, and what the answers cite. */
export function conversationMarkdown(title: string, exchanges: readonly ExchangeView[]): string {
  const parts = exchanges.flatMap(({ user, turn }) => [
    `## You\n\n${user.input?.text ?? ""}`,
    ...(turn?.lanes ?? []).map(laneMarkdown),
  ]);
  return `${[`# ${title || "Conversation"}`, ...parts].join("\n\n")}\n`;
}

function laneMarkdown(lane: LaneView): string {
  const sources = [...lane.citations].sort(([a], [b]) => a - b).map(sourceLine);
  const end = lane.end ? [`_${lane.end.text}_`] : [];
  return [
    `## ${lane.modelName || "Answer"}`,
    answerText(lane),
    ...end,
    ...(sources.length > 0 ? [sources.join("\n")] : []),
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}

function sourceLine([number, { title, url, documentId }]: [
  number,
  { title: string; url: string; documentId: string },
]): string {
  const name = title || url || documentId;
  return `- [${number}] ${/^https?:/i.test(url) ? `${name}, <${url}>` : name}`;
}
