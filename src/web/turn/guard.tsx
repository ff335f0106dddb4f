import { Component, type ReactNode } from "react";

interface GuardProps {
  /** Shown when drawing fails, so that nothing is lost. */
  readonly text: string;
  readonly children: ReactNode;
}

/** Keeps a fault in drawing one thing from taking the page down. */
export class Guard extends Component<GuardProps, { readonly failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  override render(): ReactNode {
    if (!this.state.failed) return this.props.children;
    return (
      <>
        <p className="notice is-warning">This part cannot be drawn; its text is below.</p>
        <pre tabIndex={0}>{this.props.text}</pre>
      </>
    );
  }
}
