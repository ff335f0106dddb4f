/** The page without a mouse, for a screen reader, in both colour schemes, on a phone. */
import type { Page } from "playwright-core";
import { beforeEach, expect, it } from "vitest";
import { describeInChromium } from "../support/chromium.js";
import {
  answerScript,
  finishChunks,
  gate,
  reasoningChunks,
  textChunks,
  toolCallScript,
} from "../support/scripted-upstream.js";
import { AXE_PATH, axe } from "./axe.js";
import { hasToolResult } from "../support/e2e-fixture.js";
import {
  ask,
  MODEL,
  OTHER_MODEL,
  openEverything,
  untilAnswer,
  untilIdle,
  useProfiles,
  useServer,
} from "./page-fixture.js";

const server = useServer();
const ANSWER =
  "# Heading\n\nA **list**:\n\n- one\n- two\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n```js\nconst x = 1;\n```\n\nThe end.";

describeInChromium("the page for everybody", (browser) => {
  const newProfile = useProfiles(browser, server);

  beforeEach(() =>
    server.upstream.replyWith((request) =>
      hasToolResult(request)
        ? answerScript(ANSWER)
        : [
            ...reasoningChunks("I look at the clock."),
            ...toolCallScript({ id: "c", name: "clock", args: {} }),
          ],
    ),
  );

  it.each(["light", "dark"] as const)("has nothing that axe finds, in %s", async (colorScheme) => {
    const page = await (await newProfile({ colorScheme, bypassCSP: true })).newPage();
    await page.addScriptTag({ path: AXE_PATH });
    const problems = [...(await axe(page, "empty"))];
    await ask(page, "What time is it?");
    await untilAnswer(page, "The end.");
    await untilIdle(page);
    await openEverything(page);
    problems.push(...(await axe(page, "answer")));
    await page.getByRole("button", { name: "Conversation settings" }).click();
    problems.push(...(await axe(page, "settings")));
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "Documents" }).click();
    await page.getByRole("heading", { name: "Documents" }).waitFor();
    await page.setInputFiles("input[type=file]", {
      name: "a.md",
      mimeType: "text/markdown",
      buffer: Buffer.from("# A\n\ntext"),
    });
    await page.locator(".document-row a").waitFor();
    problems.push(...(await axe(page, "documents")));
    expect(problems).toEqual([]);
  });

  it("can be used with the keyboard alone", async () => {
    const page = await (await newProfile()).newPage();
    await page.keyboard.type("Asked without a mouse");
    await page.keyboard.press("Shift+Enter");
    await page.keyboard.type("in two lines");
    await page.keyboard.press("Enter");
    await untilAnswer(page, "The end.");
    await untilIdle(page);
    expect(await page.locator(".bubble-text").innerText()).toBe("Asked without a mouse\nin two lines");

    await tabTo(page, "Answer again", "Shift+Tab");
    server.upstream.reply([...textChunks("On and on"), gate("keyboard"), ...finishChunks("stop")]);
    await page.keyboard.press("Enter");
    await untilAnswer(page, "On and on");
    await page.keyboard.press("Escape");
    await untilIdle(page);

    await tabTo(page, "Version of the answer before this", "Shift+Tab");
    await page.keyboard.press("Enter");
    await untilAnswer(page, "The end.");

    await page.evaluate(() => (document.activeElement as HTMLElement).blur());
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.press("Control+b"); // the list is hidden: searching shows it
    await page.locator("#composer-text").waitFor();
    await page.keyboard.press("Control+k");
    await page.keyboard.type("without a mouse");
    await page.locator(".hit").first().waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.locator(".exchange").first().waitFor();
    await page.keyboard.press("Control+Shift+o");
    await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("composer-text");
  });

  it("fits a phone: conversations in a drawer, nothing wider than the screen, lanes beside each other", async () => {
    const page = await (
      await newProfile({ viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true })
    ).newPage();
    await page.getByRole("button", { name: "Conversation settings" }).tap();
    await page.getByRole("checkbox", { name: MODEL }).check();
    await page.getByRole("checkbox", { name: OTHER_MODEL }).check();
    await page.getByRole("button", { name: "Save" }).tap();
    await page.locator("#composer-text").fill("On the way");
    await page.getByRole("button", { name: "Send" }).tap();
    await page.locator(".lane", { hasText: "The end." }).nth(1).waitFor();
    await untilIdle(page);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
    const lanes = await page
      .locator(".lane")
      .evaluateAll((all) => all.map((lane) => lane.getBoundingClientRect().left));
    expect(lanes[1]!).toBeGreaterThan(lanes[0]! + 200);

    await page.getByRole("button", { name: "Show the conversations" }).tap();
    await page.locator(".session-row a").first().tap();
    await page.locator(".shell:not(.has-sidebar)").waitFor();
    await page.getByRole("button", { name: "Show the conversations" }).tap();
    await page.getByRole("link", { name: "Documents" }).tap();
    await page.getByRole("heading", { name: "Documents" }).waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
  });
});

/** Moves the focus until it stands on the element with this name. */
async function tabTo(page: Page, name: string, key: "Tab" | "Shift+Tab"): Promise<void> {
  for (let steps = 0; steps < 80; steps += 1) {
    const label = await page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? "");
    if (label === name) return;
    await page.keyboard.press(key);
  }
  throw new Error(`the keyboard does not reach "${name}"`);
}
