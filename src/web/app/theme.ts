/** Dark or light: as the system says, until the user chooses. */
import { useCallback, useSyncExternalStore } from "react";
import { readStored, store } from "../data/browser-storage.js";

export type Theme = "light" | "dark";

const KEY = "turnwire.theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");

function currentTheme(): Theme {
  const chosen = readStored<unknown>(KEY, undefined);
  if (chosen === "light" || chosen === "dark") return chosen;
  return system.matches ? "dark" : "light";
}

/** Puts the theme on the document; now, and whenever it changes. */
export function applyTheme(): void {
  document.documentElement.dataset["theme"] = currentTheme();
}

function subscribe(listener: () => void): () => void {
  const changed = (): void => {
    applyTheme();
    listener();
  };
  system.addEventListener("change", changed);
  window.addEventListener("storage", changed);
  window.addEventListener("turnwire-theme", changed);
  return () => {
    system.removeEventListener("change", changed);
    window.removeEventListener("storage", changed);
    window.removeEventListener("turnwire-theme", changed);
  };
}

/** The theme, and what switches it. */
export function useTheme(): readonly [Theme, () => void] {
  const theme = useSyncExternalStore(subscribe, currentTheme);
  const toggle = useCallback(() => {
    store(KEY, theme === "dark" ? "light" : "dark");
    window.dispatchEvent(new Event("turnwire-theme"));
  }, [theme]);
  return [theme, toggle];
}
