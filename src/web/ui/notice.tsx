import type { ReactNode } from "react";
import type { Explanation } from "../../client/explain-error.js";
import { Icon } from "./icon.js";

/** What went wrong, what to do, and the button that does it. */
export function ErrorNotice({
  error,
  children,
}: {
  readonly error: Explanation;
  readonly children?: ReactNode;
}) {
  return (
    <div className="notice bad" role="alert">
      <Icon name="warn" />
      <p>
        <strong>{error.text}</strong> {error.advice}
      </p>
      {children}
    </div>
  );
}
