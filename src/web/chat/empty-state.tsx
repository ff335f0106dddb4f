import type { Catalogue } from "../data/page-data.js";
import { Icon, type IconName } from "../ui/icon.js";

export interface EmptyStateProps {
  readonly catalogue: Catalogue;
  readonly modelIds: readonly string[];
  readonly onAsk: (question: string) => void;
}

const EXAMPLES: readonly { readonly icon: IconName; readonly title: string; readonly question: string }[] = [
  {
    icon: "book",
    title: "Search your documents",
    question: "What do my documents say about refunds? Name the sources.",
  },
  { icon: "clock", title: "Look at the clock", question: "What time is it in Tokyo?" },
  { icon: "text", title: "Just ask", question: "Explain what a durable log is to a new colleague." },
];

/** What a conversation shows before its first message. */
export function EmptyState({ catalogue, modelIds, onAsk }: EmptyStateProps) {
  const models = catalogue.models.filter(({ modelId, isDefault }) =>
    modelIds.length > 0 ? modelIds.includes(modelId) : isDefault,
  );
  const isDemo = models.length > 0 && models.every(({ demo }) => demo);
  return (
    <div className="empty">
      <h1>What would you like to know?</h1>
      {isDemo && (
        <p className="demo-note">
          <Icon name="info" />
          <span>
            <strong>This is the demo model:</strong> a fixed script that shows what a conversation looks like;
            no language model is asked. Set <code>OPENAI_API_KEY</code>, <code>ANTHROPIC_API_KEY</code> or{" "}
            <code>OLLAMA_HOST</code> and start Turnwire again for real answers.
          </span>
        </p>
      )}
      <ul className="plain examples" aria-label="Example questions">
        {EXAMPLES.map(({ icon, title, question }) => (
          <li key={title}>
            <button type="button" onClick={() => onAsk(question)}>
              <Icon name={icon} />
              <span className="example-title">{title}</span>
              <span className="example-text">{question}</span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}
