/** axe-core in a page of the tests; the page's profile needs `bypassCSP`. */
import { createRequire } from "node:module";
import type { Page } from "playwright-core";

/** The script to be added to the page. */
export const AXE_PATH = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

interface AxeWindow {
  readonly axe: {
    run(): Promise<{ violations: { id: string; nodes: { target: unknown; failureSummary?: string }[] }[] }>;
  };
}

/** What axe finds on the page as it is now. */
export async function axe(page: Page, where: string): Promise<string[]> {
  await page
    .evaluate(
      () =>
        Promise.all(
          document.getAnimations().map((animation) => animation.finished.catch(() => undefined)),
        ).then(() => undefined),
      undefined,
    )
    .catch(() => undefined);
  const violations = await page.evaluate(
    async () => (await (window as unknown as AxeWindow).axe.run()).violations,
  );
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(
      ({ target, failureSummary }) => `${where}: ${id} at ${JSON.stringify(target)}: ${failureSummary ?? ""}`,
    ),
  );
}
