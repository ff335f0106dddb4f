import { useEffect } from "react";

/** Names the browser's tab after what is open; while an answer is written, a dot before the name and on the icon says so. */
export function useDocumentTitle(name: string | undefined, isAnswering: boolean): void {
  useEffect(() => {
    const title = name ? `${name} – Turnwire` : "Turnwire";
    document.title = isAnswering ? `● ${title}` : title;
    const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
    if (icon) icon.href = isAnswering ? "/icon-busy.svg" : "/icon.svg";
  }, [name, isAnswering]);
}
