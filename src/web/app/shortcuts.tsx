/** Keyboard shortcuts, and the list of them. */
import { useEffect } from "react";
import { Dialog } from "../ui/dialog.js";

export interface Shortcut {
  /** The keys as they are shown. */
  readonly keys: readonly string[];
  readonly text: string;
}

const isMac = /mac|iphone|ipad/i.test(navigator.userAgent);
const MOD = isMac ? "⌘" : "Ctrl";

export const SHORTCUTS: readonly Shortcut[] = [
  { keys: ["Enter"], text: "Send the message" },
  { keys: ["Shift", "Enter"], text: "Start a new line" },
  { keys: ["↑"], text: "Edit the last question, in an empty field" },
  { keys: ["Esc"], text: "Stop the answer, close what is open" },
  { keys: [MOD, "Shift", "O"], text: "New conversation" },
  { keys: [MOD, "K"], text: "Search in all messages" },
  { keys: ["/"], text: "Go to the message field" },
  { keys: [MOD, "B"], text: "Show or hide the list of conversations" },
  { keys: ["?"], text: "This list" },
];

export interface ShortcutActions {
  readonly onNew: () => void;
  readonly onSearch: () => void;
  readonly onCompose: () => void;
  readonly onToggleSidebar: () => void;
  readonly onShowList: () => void;
  readonly onEscape: () => void;
}

/** Listens for them on the whole page; letters typed into a field stay letters. */
export function useShortcuts(actions: ShortcutActions): void {
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      const action = actionOf(event, actions);
      if (!action || event.defaultPrevented || document.querySelector("dialog[open]")) return;
      if (event.key !== "Escape") event.preventDefault();
      action();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, [actions]);
}

function actionOf(event: KeyboardEvent, actions: ShortcutActions): (() => void) | undefined {
  const isTyping =
    event.target instanceof Element && event.target.closest("input, textarea, select") !== null;
  const key = event.key.toLowerCase();
  if (event.altKey) return undefined;
  if (event.ctrlKey || event.metaKey) {
    if (key === "k") return actions.onSearch;
    if (key === "b") return actions.onToggleSidebar;
    return key === "o" && event.shiftKey ? actions.onNew : undefined;
  }
  if (key === "escape") return actions.onEscape;
  if (isTyping) return undefined;
  if (key === "/") return actions.onCompose;
  return key === "?" ? actions.onShowList : undefined;
}

export function ShortcutsDialog({ onClose }: { readonly onClose: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose} className="narrow">
      <dl className="shortcuts">
        {SHORTCUTS.map(({ keys, text }) => (
          <div key={text}>
            <dt>{text}</dt>
            <dd>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
