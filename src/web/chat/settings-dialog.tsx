/** What a conversation uses: models, reasoning, temperature, tools, instructions. */
import { useState } from "react";
import { ReasoningEffort } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { Catalogue } from "../data/page-data.js";
import { DEFAULT_SETTINGS, type ChatSettings } from "../data/settings.js";
import { MAX_LANES, modelFacts } from "./model-facts.js";
import { Dialog } from "../ui/dialog.js";

export interface SettingsDialogProps {
  readonly settings: ChatSettings;
  readonly catalogue: Catalogue;
  readonly onSave: (settings: ChatSettings) => void;
  readonly onClose: () => void;
}

const EFFORTS: readonly (readonly [ReasoningEffort, string])[] = [
  [ReasoningEffort.UNSPECIFIED, "Model's own"],
  [ReasoningEffort.OFF, "Off"],
  [ReasoningEffort.LOW, "Low"],
  [ReasoningEffort.MEDIUM, "Medium"],
  [ReasoningEffort.HIGH, "High"],
];

export function SettingsDialog({ settings, catalogue, onSave, onClose }: SettingsDialogProps) {
  const [draft, setDraft] = useState(settings);
  const change = (changed: Partial<ChatSettings>): void => setDraft({ ...draft, ...changed });
  return (
    <Dialog
      title="Conversation settings"
      onClose={onClose}
      footer={
        <>
          <button type="button" className="button quiet" onClick={() => setDraft(DEFAULT_SETTINGS)}>
            Reset
          </button>
          <button
            type="button"
            className="button primary"
            onClick={() => {
              onSave(draft);
              onClose();
            }}
          >
            Save
          </button>
        </>
      }
    >
      <ModelChoice
        catalogue={catalogue}
        modelIds={draft.modelIds}
        onChange={(modelIds) => change({ modelIds })}
      />
      <fieldset className="setting">
        <legend>Reasoning</legend>
        <div className="segments">
          {EFFORTS.map(([effort, label]) => (
            <label key={effort}>
              <input
                type="radio"
                name="effort"
                checked={draft.reasoningEffort === effort}
                onChange={() => change({ reasoningEffort: effort })}
              />
              <span>{label}</span>
            </label>
          ))}
        </div>
      </fieldset>
      <Temperature value={draft.temperature} onChange={(temperature) => change({ temperature })} />
      <ToolChoice catalogue={catalogue} toolIds={draft.toolIds} onChange={(toolIds) => change({ toolIds })} />
      <label className="setting">
        <span className="setting-name">Instructions</span>
        <textarea
          className="field"
          rows={4}
          maxLength={32_000}
          placeholder="What the models read before the conversation"
          value={draft.systemPrompt}
          onChange={(event) => change({ systemPrompt: event.target.value })}
        />
      </label>
    </Dialog>
  );
}

function ModelChoice(props: {
  readonly catalogue: Catalogue;
  readonly modelIds: readonly string[];
  readonly onChange: (modelIds: string[]) => void;
}) {
  const { catalogue, modelIds, onChange } = props;
  const { models } = catalogue;
  const chosen =
    modelIds.length > 0
      ? modelIds
      : models.filter(({ isDefault }) => isDefault).map(({ modelId }) => modelId);
  const toggle = (modelId: string, on: boolean): void => {
    const next = on ? [...chosen, modelId] : chosen.filter((id) => id !== modelId);
    if (next.length > 0 && next.length <= MAX_LANES) onChange(next);
  };
  return (
    <fieldset className="setting">
      <legend>Models</legend>
      <p className="setting-help">
        Choose two or three to see their answers side by side, and pick the one to go on from.
      </p>
      <ul className="plain choices models">
        {models.map((model) => (
          <li key={model.modelId}>
            <label>
              <input
                type="checkbox"
                checked={chosen.includes(model.modelId)}
                disabled={!chosen.includes(model.modelId) && chosen.length >= MAX_LANES}
                onChange={(event) => toggle(model.modelId, event.target.checked)}
              />
              <span>{model.displayName || model.modelId}</span>
              <small>{modelFacts(model).join(" · ")}</small>
            </label>
          </li>
        ))}
      </ul>
      {models.length === 0 && <p className="setting-help">The list of models could not be read yet.</p>}
    </fieldset>
  );
}

function Temperature(props: {
  readonly value: number | undefined;
  readonly onChange: (value: number | undefined) => void;
}) {
  const { value, onChange } = props;
  return (
    <fieldset className="setting">
      <legend>Temperature</legend>
      <label className="check">
        <input
          type="checkbox"
          checked={value === undefined}
          onChange={(event) => onChange(event.target.checked ? undefined : 1)}
        />
        <span>Model's own</span>
      </label>
      {value !== undefined && (
        <div className="range">
          <input
            type="range"
            min={0}
            max={2}
            step={0.1}
            value={value}
            aria-label="Temperature"
            onChange={(event) => onChange(Number(event.target.value))}
          />
          <output>{value.toFixed(1)}</output>
        </div>
      )}
    </fieldset>
  );
}

function ToolChoice(props: {
  readonly catalogue: Catalogue;
  readonly toolIds: readonly string[] | undefined;
  readonly onChange: (toolIds: string[] | undefined) => void;
}) {
  const { catalogue, toolIds, onChange } = props;
  const all = catalogue.tools.map(({ toolId }) => toolId);
  const on = toolIds ?? all;
  const toggle = (toolId: string, isOn: boolean): void => {
    const next = all.filter((id) => (id === toolId ? isOn : on.includes(id)));
    onChange(next.length === all.length ? undefined : next);
  };
  if (all.length === 0) return null;
  return (
    <fieldset className="setting">
      <legend>Tools</legend>
      <ul className="plain choices">
        {catalogue.tools.map(({ toolId, displayName, name }) => (
          <li key={toolId}>
            <label>
              <input
                type="checkbox"
                role="switch"
                checked={on.includes(toolId)}
                onChange={(event) => toggle(toolId, event.target.checked)}
              />
              <span>{displayName || name}</span>
            </label>
          </li>
        ))}
      </ul>
    </fieldset>
  );
}
