import type { ButtonHTMLAttributes, Ref } from "react";
import { Icon, type IconName } from "./icon.js";

export interface IconButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  readonly icon: IconName;
  /** Its name, for screen readers and as a tooltip. */
  readonly label: string;
  readonly small?: boolean;
  readonly ref?: Ref<HTMLButtonElement>;
}

/** A button that shows only an icon. */
export function IconButton({ icon, label, small = false, className = "", ...rest }: IconButtonProps) {
  return (
    <button
      type="button"
      className={`icon-button ${small ? "small" : ""} ${className}`}
      aria-label={label}
      title={label}
      {...rest}
    >
      <Icon name={icon} />
    </button>
  );
}
