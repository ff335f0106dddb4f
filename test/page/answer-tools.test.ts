/**
 * What stands around an answer: the menu of models, the details of a turn, feedback in words, the conversation as
 * Markdown, what a citation stands for. Each is used as a person would, and looked at by axe in both themes.
 */
import { readFile } from "node:fs/promises";
import type { Page } from "playwright-core";
import { beforeEach, expect, it } from "vitest";
import { describeInChromium } from "../support/chromium.js";
import { hasToolResult } from "../support/e2e-fixture.js";
import {
  finishChunks,
  gate,
  send,
  status,
  textChunks,
  toolCallScript,
  type RecordedRequest,
  type Script,
} from "../support/scripted-upstream.js";
import { AXE_PATH, axe } from "./axe.js";
import { ask, MODEL, OTHER_MODEL, untilAnswer, untilIdle, useProfiles, useServer } from "./page-fixture.js";

const MODELS = [MODEL, OTHER_MODEL, ...Array.from({ length: 10 }, (_, i) => `vendor/model-${i}`)];
const server = useServer({ models: MODELS });

/** A search, then an answer that cites what it found. */
function cited(request: RecordedRequest): Script {
  return hasToolResult(request)
    ? [...textChunks("Herons stay sixty days [1].\n\n```js\nconst days = 60;\n```"), ...finishChunks("stop")]
    : toolCallScript({ id: "c", name: "search", args: { queries: ["herons stay"] } });
}

async function addDocument(page: Page): Promise<void> {
  await page.getByRole("link", { name: "Documents" }).click();
  await page.setInputFiles("input[type=file]", {
    name: "Herons.md",
    mimeType: "text/markdown",
    buffer: Buffer.from("# Herons\n\nHerons stay for sixty days."),
  });
  await page.locator(".document-row a").first().waitFor();
  await page.getByRole("button", { name: "New conversation" }).click();
}

describeInChromium("what stands around an answer", (browser) => {
  const newProfile = useProfiles(browser, server);

  beforeEach(() => server.upstream.replyWith(cited));

  it.each(["light", "dark"] as const)("has nothing that axe finds, in %s", async (colorScheme) => {
    const page = await (
      await newProfile({ colorScheme, bypassCSP: true, reducedMotion: "reduce" })
    ).newPage();
    await page.addScriptTag({ path: AXE_PATH });
    await addDocument(page);
    await ask(page, "How long do herons stay?");
    await untilAnswer(page, "Herons stay");
    await untilIdle(page);
    await page.locator(".cite button").first().hover();
    await page.locator(".cite-card").getByText("Herons.md").waitFor();
    const problems = [...(await axe(page, "citation"))];
    await page.getByRole("button", { name: /^Models:/ }).click();
    await page.getByRole("searchbox", { name: "Find a model" }).waitFor();
    problems.push(...(await axe(page, "models")));
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Details of the answer" }).click();
    await page.getByText("npx turnwire replay").waitFor();
    problems.push(...(await axe(page, "details")));
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Bad answer" }).click();
    await page.getByRole("textbox", { name: "What was wrong?" }).waitFor();
    problems.push(...(await axe(page, "feedback")));
    await page.getByRole("button", { name: "Edit the title" }).click();
    problems.push(...(await axe(page, "title")));
    await page.keyboard.press("Escape");
    server.upstream.reply([status(401), send(JSON.stringify({ error: { message: "bad key" } }))]);
    await ask(page, "And what goes wrong?");
    await page.locator(".end.is-error").waitFor();
    await untilIdle(page);
    problems.push(...(await axe(page, "error")));
    expect(problems).toEqual([]);
  });

  it("finds a model by its name, takes it, and asks it", async () => {
    const page = await (await newProfile()).newPage();
    await page.getByRole("button", { name: `Models: ${MODEL}` }).click();
    await page.keyboard.type("model-7");
    await page.getByRole("button", { name: "vendor/model-7", exact: false }).first().waitFor();
    expect(await page.locator(".model-take").count()).toBe(1);
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Models: vendor/model-7" }).waitFor();
    expect(await page.locator(".bubble").count()).toBe(0);

    const asked = server.upstream.requests.length;
    server.upstream.reply([...textChunks("Seven."), ...finishChunks("stop")]);
    await ask(page, "Who are you?");
    await untilAnswer(page, "Seven.");
    expect(server.upstream.requests[asked]?.json?.model).toBe("vendor/model-7");
  });

  it("leads from an error that another model may spare to the choice of one", async () => {
    const page = await (await newProfile()).newPage();
    server.upstream.reply([status(401), send(JSON.stringify({ error: { message: "bad key" } }))]);
    await ask(page, "Will this fail?");
    await page.getByRole("button", { name: "Choose a model" }).click();
    await page.getByRole("button", { name: `Ask ${OTHER_MODEL} too` }).click();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: `Models: ${MODEL}, ${OTHER_MODEL}` }).waitFor();
  });

  it("tells how an answer was made", async () => {
    const page = await (await newProfile()).newPage();
    await ask(page, "How long do herons stay?");
    await untilAnswer(page, "Herons stay");
    await untilIdle(page);
    await page.getByRole("button", { name: "Details of the answer" }).click();
    const dialog = page.getByRole("dialog", { name: "Details of the answer" });
    await dialog.getByText("npx turnwire replay").waitFor();
    const rows = await dialog.locator("tbody tr").allInnerTexts();
    expect(rows.map((row) => row.split("\t").at(-1))).toEqual(["tool calls", "stop"]);
    expect(await dialog.locator("dl").innerText()).toContain(MODEL);
  });

  it("sends what somebody writes about a bad answer", async () => {
    const page = await (await newProfile()).newPage();
    await ask(page, "How long do herons stay?");
    await untilAnswer(page, "Herons stay");
    await untilIdle(page);
    await page.getByRole("button", { name: "Bad answer" }).click();
    await page.getByRole("textbox", { name: "What was wrong?" }).fill("Storks were meant");
    const sent = page.waitForRequest(
      (request) =>
        request.url().endsWith("/SetFeedback") && /Storks were meant/.test(request.postData() ?? ""),
    );
    await page.getByRole("button", { name: "Send", exact: true }).first().click();
    await sent;
    await page.getByText("Thank you").waitFor();
  });

  it("gives the conversation as a Markdown file, and edits the last question from an empty field", async () => {
    const page = await (await newProfile()).newPage();
    await ask(page, "How long do herons stay?");
    await untilAnswer(page, "Herons stay");
    await untilIdle(page);
    await page.locator(".topbar").hover();
    const download = page.waitForEvent("download");
    await page.getByRole("button", { name: "Download the conversation as Markdown" }).click();
    const text = await readFile(await (await download).path(), "utf8");
    expect(text).toContain("## You\n\nHow long do herons stay?");
    expect(text).toContain(`## ${MODEL}\n\nHerons stay`);

    await page.locator("#composer-text").press("ArrowUp");
    expect(await page.getByRole("textbox", { name: "Question" }).inputValue()).toBe(
      "How long do herons stay?",
    );
  });

  it("says in the title that an answer is written, and below that there is new text", async () => {
    const page = await (await newProfile({ viewport: { width: 900, height: 420 } })).newPage();
    const lines = Array.from({ length: 60 }, (_, i) => `Line ${i}\n\n`).join("");
    server.upstream.reply([...textChunks(lines), gate("below"), ...finishChunks("stop")]);
    await ask(page, "Write much");
    await untilAnswer(page, "Line 59");
    await page.waitForFunction(() => document.title.startsWith("●"));
    await page.locator(".chat-scroll").hover();
    await page.mouse.wheel(0, -600);
    await page.getByRole("button", { name: /^New text below/ }).click();
    server.upstream.open("below");
    await untilIdle(page);
    await page.waitForFunction(() => !document.title.startsWith("●"));
  });
});
