import { useEffect, useState } from "react";
import { usePage } from "./page-context.js";
import { Icon } from "../ui/icon.js";
import { useObservable } from "../ui/use-observable.js";

/** A loss shorter than this is healed before anybody needs to know. */
const PATIENCE_MS = 1_500;

/** Says that the network is lost, as long as it is; and that a newer page is to be had. */
export function ConnectionNotice() {
  const { link } = usePage();
  const status = useObservable(link.status);
  const [isLong, setLong] = useState(false);
  const isLost = status.kind === "offline";
  const hasNewer = useNewerPage(status.kind === "online");
  useEffect(() => {
    if (!isLost) return setLong(false);
    const timer = setTimeout(() => setLong(true), navigator.onLine ? PATIENCE_MS : 0);
    return () => clearTimeout(timer);
  }, [isLost]);
  return (
    <div className="banner-place" role="status">
      {isLost && isLong && (
        <p className="banner">
          <Icon name="offline" />
          <span>
            <strong>No connection to the server.</strong> Answers go on there; what you send now leaves when
            it is back.
          </span>
          <button type="button" className="button" onClick={() => link.wake()}>
            Try now
          </button>
        </p>
      )}
      {hasNewer && (
        <p className="banner">
          <Icon name="info" />
          <span>A newer version of this page is here.</span>
          <button type="button" className="button" onClick={() => window.location.reload()}>
            Reload
          </button>
        </p>
      )}
    </div>
  );
}

/** After each new connection: whether the server now delivers another build of the page than this one. */
function useNewerPage(isOnline: boolean): boolean {
  const [hasNewer, setNewer] = useState(false);
  useEffect(() => {
    if (!isOnline) return;
    const own = document.querySelector<HTMLScriptElement>("script[type=module][src]")?.getAttribute("src");
    if (!own) return;
    const abort = new AbortController();
    fetch("/", { cache: "no-cache", signal: abort.signal })
      .then(async (response) => {
        if (response.ok && !(await response.text()).includes(own)) setNewer(true);
      })
      .catch(() => undefined); // asked again with the next connection
    return () => abort.abort();
  }, [isOnline]);
  return hasNewer;
}
