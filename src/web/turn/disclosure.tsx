/** A heading that shows and hides what is below it. */
import { useId, useState, type ReactNode } from "react";

/** What is hidden is not drawn: a long trace costs nothing until somebody looks at it. */
export function Disclosure(props: {
  readonly className: string;
  readonly summary: ReactNode;
  /** Whether it is open until a person decides otherwise. */
  readonly openByDefault?: boolean;
  readonly children: () => ReactNode;
}): ReactNode {
  const [chosen, setChosen] = useState<boolean>();
  const id = useId();
  const open = chosen ?? props.openByDefault ?? false;
  return (
    <section className={`${props.className} disclosure`}>
      <button
        type="button"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        onClick={() => setChosen(!open)}
      >
        <span className="disclosure-mark" aria-hidden="true" />
        {props.summary}
      </button>
      {open && (
        <div id={id} className="disclosure-body">
          {props.children()}
        </div>
      )}
    </section>
  );
}
