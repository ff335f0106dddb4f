/** Short messages at the lower edge: what could not be done and what to do about it. */
import { createContext, useCallback, useContext, useEffect, useState, type ReactNode } from "react";
import type { Explanation } from "../../client/explain-error.js";
import { Icon } from "./icon.js";
import { IconButton } from "./icon-button.js";

const ToastContext = createContext<(message: Explanation) => void>(() => undefined);
const SHOWN_MS = 8_000;

export function useToast(): (message: Explanation) => void {
  return useContext(ToastContext);
}

export function ToastProvider({ children }: { readonly children: ReactNode }) {
  const [toast, setToast] = useState<Explanation>();
  useEffect(() => {
    if (!toast) return;
    const timer = setTimeout(() => setToast(undefined), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [toast]);
  const show = useCallback((message: Explanation) => setToast(message), []);
  return (
    <ToastContext value={show}>
      {children}
      <div className="toasts" role="alert">
        {toast && (
          <div className="toast">
            <Icon name="warn" />
            <p>
              <strong>{toast.text}</strong> {toast.advice}
            </p>
            <IconButton small icon="close" label="Close the message" onClick={() => setToast(undefined)} />
          </div>
        )}
      </div>
    </ToastContext>
  );
}
