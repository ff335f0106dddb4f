import { useCallback, useRef, useState } from "react";
import type { Catalogue } from "../data/page-data.js";
import type { ChatSettings } from "../data/settings.js";
import { Icon } from "../ui/icon.js";
import { ModelMenu } from "./model-menu.js";

/** Which models answer; opens their choice. */
export function ModelButton(props: {
  readonly settings: ChatSettings;
  readonly catalogue: Catalogue;
  readonly onSave: (settings: ChatSettings) => void;
}) {
  const { settings, catalogue, onSave } = props;
  const [isOpen, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const close = useCallback(() => {
    setOpen(false);
    button.current?.focus();
  }, []);
  const ids = settings.modelIds;
  const chosen = catalogue.models.filter(({ modelId, isDefault }) =>
    ids.length > 0 ? ids.includes(modelId) : isDefault,
  );
  const names = chosen.map(({ displayName, modelId }) => displayName || modelId);
  const label = names.length > 1 ? `${names.length} models` : (names[0] ?? ids[0] ?? "Model");
  return (
    <div className="model-place">
      <button
        ref={button}
        type="button"
        id="choose-model"
        className="model-button"
        aria-haspopup="dialog"
        aria-expanded={isOpen}
        aria-label={`Models: ${names.join(", ") || label}`}
        title={names.join(", ")}
        onClick={() => setOpen(!isOpen)}
      >
        {names.length > 1 && <Icon name="columns" />}
        <span>{label}</span>
        <Icon name="chevron" />
      </button>
      {isOpen && (
        <ModelMenu
          models={catalogue.models}
          chosen={chosen.map(({ modelId }) => modelId)}
          onChange={(modelIds) => onSave({ ...settings, modelIds })}
          onClose={close}
        />
      )}
    </div>
  );
}
