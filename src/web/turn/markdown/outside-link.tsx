import type { ReactNode } from "react";

/** A link that leads out of the page: it opens beside it and learns nothing about it. */
export function OutsideLink(props: {
  readonly href: string;
  readonly title?: string | undefined;
  readonly children: ReactNode;
}): ReactNode {
  return (
    <a href={props.href} title={props.title} target="_blank" rel="noopener noreferrer nofollow">
      {props.children}
    </a>
  );
}
