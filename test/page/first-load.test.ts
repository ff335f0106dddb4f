/** How much the first visit loads, how soon it shows something, and what may run in it. Times: runs alone. */
import { gzipSync } from "node:zlib";
import type { Response } from "playwright-core";
import { expect, it } from "vitest";
import { describeInChromium } from "../support/chromium.js";
import { useProfiles, useServer } from "./page-fixture.js";

const server = useServer();
const FIRST_LOAD_BYTES = 250 * 1024;
const FIRST_PAINT_MS = 1_000;
const VISITS = 5;

describeInChromium("the first visit", (browser) => {
  const newProfile = useProfiles(browser, server);

  it("loads at most 250 KB, compressed, of script, style and markup", async () => {
    const page = await (await newProfile()).context.newPage();
    const loaded = new Map<string, Response>();
    const onResponse = (response: Response): void => {
      const { pathname } = new URL(response.url());
      if (/\.(js|css|svg)$|^\/$/.test(pathname)) loaded.set(pathname, response);
    };
    page.on("response", onResponse);
    await page.goto(server.origin);
    await page.locator("#composer-text").waitFor();
    page.off("response", onResponse); // what is loaded later is not the first load
    const bodies = await Promise.all([...loaded.values()].map((response) => response.body()));
    expect([...loaded.keys()].filter((name) => name.endsWith(".js")).length).toBeGreaterThan(0);
    expect(bodies.reduce((sum, body) => sum + gzipSync(body).length, 0)).toBeLessThan(FIRST_LOAD_BYTES);
  });

  it("paints within a second, in most of five visits with an empty cache", async () => {
    const times: number[] = [];
    for (let visit = 0; visit < VISITS; visit += 1) {
      const profile = await newProfile();
      const page = await profile.newPage();
      times.push(
        await page.evaluate(
          () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity,
        ),
      );
      await profile.context.close();
    }
    times.sort((a, b) => a - b);
    expect(times[Math.floor(VISITS / 2)]).toBeLessThan(FIRST_PAINT_MS);
  });

  it("is answered with files that browsers keep, and with a policy that lets nothing else run", async () => {
    const page = await (await newProfile()).newPage();
    const index = await page.request.get(server.origin);
    expect(index.headers()).toMatchObject({
      "cache-control": "no-cache",
      "content-type": "text/html; charset=utf-8",
    });
    expect(index.headers()["content-security-policy"]).toContain("script-src 'self'");
    expect(index.headers()["content-security-policy"]).not.toMatch(/unsafe|\*|data:/);
    const script = /src="(\/assets\/[^"]+\.js)"/.exec(await index.text())![1]!;
    const asset = await page.request.get(server.origin + script, { headers: { "accept-encoding": "br" } });
    expect(asset.headers()).toMatchObject({
      "cache-control": "public, max-age=31536000, immutable",
      "content-encoding": "br",
      "content-type": "text/javascript; charset=utf-8",
    });
    const again = await page.request.get(server.origin + script, {
      headers: { "accept-encoding": "br", "if-none-match": asset.headers()["etag"]! },
    });
    expect(again.status()).toBe(304);
  });

  it("says which log is in use", async () => {
    const page = await (await newProfile()).newPage();
    await page.getByText(/Log: Postgres/).waitFor();
  });
});
