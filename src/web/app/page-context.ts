import { createContext, useContext } from "react";
import type { PageData } from "../data/page-data.js";

const PageContext = createContext<PageData | undefined>(undefined);

export const PageProvider = PageContext.Provider;

/** Everything the page knows. */
export function usePage(): PageData {
  const page = useContext(PageContext);
  if (!page) throw new Error("there is no PageProvider above");
  return page;
}
