/** A document that is much larger than a page can show opens where a citation points. */
import { expect, it } from "vitest";
import { describeInChromium } from "../support/chromium.js";
import { useProfiles, useServer } from "./page-fixture.js";

const server = useServer();
/** What the service gives at a time. */
const PART_LETTERS = 128 * 1024;
const LINE = "The quick brown fox jumps over the lazy dog, and nothing else ever happens here.\n";
const PLACE = 4_500_000;
/** 5 MB, with one line that stands nowhere else. */
const TEXT = `${LINE.repeat(Math.ceil(PLACE / LINE.length)).slice(0, PLACE - 1)}\nHere it is, 😀 the place.\n${LINE.repeat(6_200)}`;

describeInChromium("a document of 5 MB", (browser) => {
  const newProfile = useProfiles(browser, server);

  it("opens at its place and reads on from there, without reading what is before it or anything twice", async () => {
    const profile = await newProfile();
    const page = await profile.newPage("/#/documents");
    await page.setInputFiles("input[type=file]", {
      name: "large.txt",
      mimeType: "text/plain",
      buffer: Buffer.from(TEXT),
    });
    const link = page.locator("a.document-title", { hasText: "large.txt" });
    await link.waitFor({ timeout: 90_000 });
    const address = await link.getAttribute("href");

    let reads = 0;
    const other = await profile.newPage();
    other.on("request", (request) => (reads += request.url().includes("GetDocument") ? 1 : 0));
    await other.goto(`${server.origin}/${address}?at=${PLACE}`);
    await other.locator("mark", { hasText: "Here it is, 😀 the place." }).waitFor();
    const text = other.locator(".document-text");
    const lengthOf = (): Promise<number> => text.evaluate((element) => element.textContent!.length);
    await expect.poll(lengthOf).toBeGreaterThan(200_000);
    const before = await lengthOf();
    expect(before).toBeLessThan(300_000);
    expect(reads).toBe(Math.ceil(before / PART_LETTERS));
    await other.getByRole("button", { name: "Read on" }).click();
    await expect.poll(lengthOf).toBeGreaterThan(before + 100_000);
    expect(reads).toBe(Math.ceil((await lengthOf()) / PART_LETTERS));
  }, 150_000);
});
