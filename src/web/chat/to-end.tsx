import { Icon } from "../ui/icon.js";

/** The way back to the newest text, for who has gone up; it tells when there is more to read there. */
export function ToEnd({ isWriting, onClick }: { readonly isWriting: boolean; readonly onClick: () => void }) {
  return (
    <button
      type="button"
      className={isWriting ? "to-end is-writing" : "to-end"}
      aria-label={isWriting ? "New text below: go to the newest" : "Go to the newest"}
      title="Go to the newest"
      onClick={onClick}
    >
      <Icon name="arrowDown" />
      {isWriting && <span>New text below</span>}
    </button>
  );
}
