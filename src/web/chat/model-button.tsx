import type { Catalogue } from "../data/page-data.js";
import type { ChatSettings } from "../data/settings.js";
import { Icon } from "../ui/icon.js";

/** Which models answer; leads to their choice. */
export function ModelButton(props: {
  readonly settings: ChatSettings;
  readonly catalogue: Catalogue;
  readonly onClick: () => void;
}) {
  const { settings, catalogue, onClick } = props;
  const ids = settings.modelIds;
  const chosen = catalogue.models.filter(({ modelId, isDefault }) =>
    ids.length > 0 ? ids.includes(modelId) : isDefault,
  );
  const names = chosen.map(({ displayName, modelId }) => displayName || modelId);
  const label = names.length > 1 ? `${names.length} models` : (names[0] ?? ids[0] ?? "Model");
  return (
    <button
      type="button"
      className="model-button"
      aria-label={`Models: ${names.join(", ") || label}`}
      title={names.join(", ")}
      onClick={onClick}
    >
      {names.length > 1 && <Icon name="columns" />}
      <span>{label}</span>
    </button>
  );
}
