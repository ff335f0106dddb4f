/** The models to choose from, with what they take and cost; more than one can answer side by side. */
import { useEffect, useId, useRef, useState, type KeyboardEvent } from "react";
import type { Model } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { Icon } from "../ui/icon.js";
import { MAX_LANES, modelFacts } from "./model-facts.js";

export interface ModelMenuProps {
  readonly models: readonly Model[];
  /** Ids of the chosen ones. */
  readonly chosen: readonly string[];
  readonly onChange: (modelIds: readonly string[]) => void;
  readonly onClose: () => void;
}

/** From so many models on there is a field to find one. */
const SEARCH_FROM = 8;

/** A list that opens above the composer. A click takes one model; the box at its end adds it beside the others. */
export function ModelMenu({ models, chosen, onChange, onClose }: ModelMenuProps) {
  const [query, setQuery] = useState("");
  const box = useRef<HTMLDivElement>(null);
  const titleId = useId();
  useEffect(() => {
    // on a phone, the field would bring up the keyboard and cover the list
    const field = window.matchMedia("(pointer: fine)").matches ? "input[type=search], " : "";
    box.current!.querySelector<HTMLElement>(`${field}.model-take`)?.focus();
    const onPointerDown = ({ target }: PointerEvent): void => {
      if (target instanceof Element && !target.closest(".model-place")) onClose();
    };
    window.addEventListener("pointerdown", onPointerDown);
    return () => window.removeEventListener("pointerdown", onPointerDown);
  }, [onClose]);
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = models.filter(({ modelId, displayName, ownedBy }) =>
    words.every((word) => `${modelId} ${displayName} ${ownedBy}`.toLowerCase().includes(word)),
  );
  const take = (id: string): void => {
    onChange([id]);
    onClose();
  };
  const toggle = (id: string): void => {
    const next = chosen.includes(id) ? chosen.filter((each) => each !== id) : [...chosen, id];
    if (next.length > 0 && next.length <= MAX_LANES) onChange(next);
  };
  const onKeyDown = (event: KeyboardEvent<HTMLElement>): void => {
    if (event.key === "Escape") {
      event.preventDefault();
      return onClose();
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const stops = [...box.current!.querySelectorAll<HTMLElement>("input[type=search], .model-take")];
    const at = stops.findIndex((stop) => stop === document.activeElement);
    stops[(at + step + stops.length) % stops.length]?.focus();
  };
  return (
    <div ref={box} className="model-menu" role="dialog" aria-labelledby={titleId} onKeyDown={onKeyDown}>
      <h2 id={titleId} className="hidden-text">
        Choose a model
      </h2>
      {models.length >= SEARCH_FROM && (
        <input
          type="search"
          className="field"
          placeholder="Find a model"
          aria-label="Find a model"
          value={query}
          onChange={(event) => setQuery(event.target.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter") return;
            event.preventDefault(); // the field stands in the composer's form
            if (shown[0]) take(shown[0].modelId);
          }}
        />
      )}
      {shown.length === 0 && (
        <p className="list-note" role="status">
          {models.length === 0 ? "The list of models could not be read yet." : "No model has this name."}
        </p>
      )}
      <ul className="plain model-list" aria-label="Models">
        {shown.map((model) => (
          <ModelItem
            key={model.modelId}
            model={model}
            isChosen={chosen.includes(model.modelId)}
            canAdd={chosen.includes(model.modelId) ? chosen.length > 1 : chosen.length < MAX_LANES}
            onTake={() => take(model.modelId)}
            onToggle={() => toggle(model.modelId)}
          />
        ))}
      </ul>
    </div>
  );
}

function ModelItem(props: {
  readonly model: Model;
  readonly isChosen: boolean;
  readonly canAdd: boolean;
  readonly onTake: () => void;
  readonly onToggle: () => void;
}) {
  const { model, isChosen, canAdd, onTake, onToggle } = props;
  const name = model.displayName || model.modelId;
  return (
    <li className={isChosen ? "model-item is-chosen" : "model-item"}>
      <button type="button" className="model-take" aria-pressed={isChosen} onClick={onTake}>
        <span className="model-name">{name}</span>
        <span className="model-facts">{modelFacts(model).join(" · ")}</span>
      </button>
      <button
        type="button"
        className="icon-button small"
        aria-pressed={isChosen}
        aria-label={isChosen ? `Ask without ${name}` : `Ask ${name} too`}
        title={isChosen ? "Ask without this one" : "Ask this one too, side by side"}
        disabled={!canAdd}
        onClick={onToggle}
      >
        <Icon name={isChosen ? "check" : "plus"} />
      </button>
    </li>
  );
}
