/** The whole page: the data, then a door where the server wants one, then the shell. */
import { Component, type ReactNode } from "react";
import type { PageData } from "../data/page-data.js";
import { ErrorCode } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { ToastProvider } from "../ui/toast.js";
import { useObservable } from "../ui/use-observable.js";
import { PageProvider } from "./page-context.js";
import { Shell } from "./shell.js";
import { SignIn } from "./sign-in.js";

export function App({ page }: { readonly page: PageData }) {
  return (
    <ErrorBoundary>
      <PageProvider value={page}>
        <ToastProvider>
          <Door page={page} />
        </ToastProvider>
      </PageProvider>
    </ErrorBoundary>
  );
}

function Door({ page }: { readonly page: PageData }) {
  const { token } = page.account;
  const status = useObservable(page.link.status);
  const isRefused = status.kind === "refused" && status.code === ErrorCode.UNAUTHENTICATED;
  if (page.config.auth === "token" && (!token || isRefused))
    return <SignIn isRefused={isRefused && token !== ""} />;
  return <Shell />;
}

/** A fault of the page itself: says so, and offers a fresh start. */
class ErrorBoundary extends Component<{ readonly children: ReactNode }, { readonly failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  override render(): ReactNode {
    if (!this.state.failed) return this.props.children;
    return (
      <main className="sign-in">
        <div className="sign-in-box" role="alert">
          <h1>The page met a fault of its own</h1>
          <p>Nothing is lost: conversations and running answers are with the server. Reload to go on.</p>
          <button type="button" className="button primary" onClick={() => window.location.reload()}>
            Reload
          </button>
        </div>
      </main>
    );
  }
}
