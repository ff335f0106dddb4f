import { useSyncExternalStore } from "react";
import type { Observable } from "../../client/live/observable.js";

/** The value of an observable; the component is drawn anew when it is replaced. */
export function useObservable<T>(observable: Observable<T>): T {
  return useSyncExternalStore(observable.subscribe, observable.get);
}
