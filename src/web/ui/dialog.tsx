import { useEffect, useId, useRef, type ReactNode } from "react";
import { IconButton } from "./icon-button.js";

export interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ReactNode;
  /** Buttons at the end. */
  readonly footer?: ReactNode;
  readonly className?: string;
}

/** A modal dialog: the browser's own, which keeps the focus inside and gives it back. Mounted = open. */
export function Dialog({ title, onClose, children, footer, className = "" }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => {
    const dialog = ref.current!;
    const opener = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      className={`dialog ${className}`}
      aria-labelledby={titleId}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === ref.current && onClose()}
    >
      <div className="dialog-box">
        <header className="dialog-head">
          <h2 id={titleId}>{title}</h2>
          <IconButton icon="close" label="Close" onClick={onClose} />
        </header>
        <div className="dialog-body">{children}</div>
        {footer && <footer className="dialog-foot">{footer}</footer>}
      </div>
    </dialog>
  );
}

/** Asks before something that cannot be undone. */
export function ConfirmDialog(props: {
  readonly title: string;
  readonly text: string;
  readonly action: string;
  readonly onConfirm: () => void;
  readonly onClose: () => void;
}) {
  const { title, text, action, onConfirm, onClose } = props;
  return (
    <Dialog
      title={title}
      onClose={onClose}
      className="narrow"
      footer={
        <>
          <button type="button" className="button" onClick={onClose} autoFocus>
            Keep it
          </button>
          <button
            type="button"
            className="button danger"
            onClick={() => {
              onConfirm();
              onClose();
            }}
          >
            {action}
          </button>
        </>
      }
    >
      <p>{text}</p>
    </Dialog>
  );
}
