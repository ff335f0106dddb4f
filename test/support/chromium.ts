/**
 * A real Chromium for tests. Without one the suites that need it are skipped with a loud word - in CI that is a failure.
 */
import { chromium, type Browser, type Page, type Request } from "playwright-core";
import { afterAll, beforeAll, describe, test } from "vitest";
import { CHROMIUM_HELP, findChromium } from "../../scripts/get-chromium.mjs";

const executablePath = findChromium();

/** Runs `suite` with a browser; pages are opened with `browser()` inside its tests and hooks. */
export function describeInChromium(name: string, suite: (browser: () => Browser) => void): void {
  if (executablePath) {
    describe(name, () => {
      let running: Browser | undefined;
      beforeAll(async () => {
        running = await launchChromium(executablePath);
      });
      afterAll(() => running?.close());
      suite(() => running!);
    });
    return;
  }
  console.error(`SKIPPED: ${name} needs Chromium; ${CHROMIUM_HELP}`);
  if (process.env["CI"]) {
    test(`${name} has a browser`, () => {
      throw new Error(`no Chromium; ${CHROMIUM_HELP}`);
    });
  } else {
    test.skip(`${name} (no Chromium)`, () => undefined);
  }
}

/** Starts a browser without a window, with `gc()` in its pages and memory figures that are not rounded. */
export function launchChromium(path = executablePath): Promise<Browser> {
  return chromium.launch({
    executablePath: path,
    args: [
      "--no-sandbox", // tests run as root in containers
      "--js-flags=--expose-gc",
      "--enable-precise-memory-info",
      "--disable-dev-shm-usage",
    ],
  });
}

/** What must not happen in a page that shows hostile content: dialogs, requests to anywhere else, uncaught errors. */
export interface PageWatch {
  readonly dialogs: string[];
  readonly outsideRequests: string[];
  readonly errors: string[];
}

/** Watches a page from now on; `origin` is where it may ask. */
export function watchPage(page: Page, origin: string): PageWatch {
  const watch: PageWatch = { dialogs: [], outsideRequests: [], errors: [] };
  page.on("dialog", (dialog) => {
    watch.dialogs.push(dialog.message());
    void dialog.dismiss();
  });
  page.on("request", (request: Request) => {
    const url = request.url();
    if (!url.startsWith(`${origin}/`) && !url.startsWith("data:")) watch.outsideRequests.push(url);
  });
  page.on("pageerror", (error) => watch.errors.push(String(error)));
  return watch;
}
