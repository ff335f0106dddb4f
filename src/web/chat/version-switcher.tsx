import { IconButton } from "../ui/icon-button.js";

export interface VersionSwitcherProps {
  /** What has versions: "question", "answer". */
  readonly what: string;
  /** The versions, oldest first. */
  readonly ids: readonly string[];
  readonly current: string;
  readonly onSelect: (id: string) => void;
  readonly disabled?: boolean;
}

/** "2 / 3", with a way to the one before and the one after. */
export function VersionSwitcher({ what, ids, current, onSelect, disabled = false }: VersionSwitcherProps) {
  const index = Math.max(ids.indexOf(current), 0);
  return (
    <div className="versions" role="group" aria-label={`Versions of the ${what}`}>
      <IconButton
        small
        icon="left"
        label={`Version of the ${what} before this`}
        disabled={disabled || index === 0}
        onClick={() => onSelect(ids[index - 1]!)}
      />
      <span aria-live="polite">
        {index + 1} / {ids.length}
      </span>
      <IconButton
        small
        icon="right"
        label={`Version of the ${what} after this`}
        disabled={disabled || index === ids.length - 1}
        onClick={() => onSelect(ids[index + 1]!)}
      />
    </div>
  );
}
