/** Conversations as people have them, in a real browser against a real server. */
import type { Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { describeInChromium } from "../support/chromium.js";
import { hasToolResult } from "../support/e2e-fixture.js";
import {
  answerScript,
  finishChunks,
  gate,
  reasoningChunks,
  status,
  send,
  textChunks,
  toolCallScript,
  type RecordedRequest,
  type Script,
} from "../support/scripted-upstream.js";
import { makePdf, startWebPages, type WebPages } from "../support/web-pages.js";
import {
  ask,
  MODEL,
  OTHER_MODEL,
  untilAnswer,
  untilIdle,
  untilSession,
  useProfiles,
  useServer,
} from "./page-fixture.js";

let pages: WebPages;
beforeAll(async () => {
  pages = await startWebPages();
});
afterAll(() => pages.close());

const server = useServer({ allowHosts: () => [pages.host] });

describeInChromium("a conversation on the page", (browser) => {
  const newProfile = useProfiles(browser, server);

  beforeEach(() => server.upstream.replyWith((request) => answerScript(`You said: ${lastText(request)}`)));

  it("adds a PDF, searches it, opens a page, cites both, and a citation opens its source at the place", async () => {
    const profile = await newProfile();
    const page = await profile.newPage("/#/documents");
    const pdf = makePdf(
      ["The Heron lighthouse was built in 1874 by Ada Quill.", "Its lamp burns whale oil until 1923."],
      "Heron lighthouse",
    );
    await page.setInputFiles("input[type=file]", {
      name: "heron.pdf",
      mimeType: "application/pdf",
      buffer: pdf,
    });
    await page
      .locator(".document-row", { hasText: "2 passages" })
      .or(page.locator(".document-row", { hasText: /PDF/ }))
      .first()
      .waitFor();

    server.upstream.replyWith((request) => firstConversation(request));
    await page.getByRole("button", { name: "New conversation" }).click();
    await ask(page, "When was the Heron lighthouse built?");
    await page.locator(".tool", { hasText: "Heron lighthouse built" }).first().waitFor();
    await page.locator(".tool", { hasText: pages.host }).first().waitFor();
    await untilAnswer(page, "It was built in 1874");
    await untilIdle(page);

    const chip = page.locator(".answer .cite button").first();
    await chip.click();
    const panel = page.locator("aside.panel");
    await panel.locator("mark", { hasText: "1874" }).waitFor();
    expect(await panel.locator("h2").evaluate((heading) => heading === document.activeElement)).toBe(true);
    await page.keyboard.press("Escape");
    await panel.waitFor({ state: "detached" });
    expect(await chip.evaluate((button) => button === document.activeElement)).toBe(true);
    expect(profile.watches[0]).toEqual({ dialogs: [], outsideRequests: [], errors: [] });
  });

  it("shows what was said before a reload, and goes on with it", async () => {
    const page = await (await newProfile()).newPage();
    server.upstream.reply(slowAnswer("Before the reload", "and after it.", "reload"));
    await ask(page, "Tell me something long");
    await untilAnswer(page, "Before the reload");
    await page.reload();
    await untilAnswer(page, "Before the reload");
    await page.getByRole("button", { name: "Stop the answer" }).waitFor();
    server.upstream.open("reload");
    await untilAnswer(page, "Before the reload and after it.");
    await untilIdle(page);
  });

  it("goes on after the server was killed and started again in the middle of an answer", async () => {
    const page = await (await newProfile()).newPage();
    server.upstream.reply(slowAnswer("This part was lost", "never", "kill"));
    server.upstream.replyWith(() => answerScript("The whole answer, written by the next process."));
    await ask(page, "Survive this");
    await untilAnswer(page, "This part was lost");
    await server.kill9();
    await server.restart();
    await untilIdle(page);
    // the turn is carried on by the new process, or ends as interrupted with what it had: the page shows which
    const text = await page.locator(".answer").last().innerText();
    expect(text).toMatch(/written by the next process|interrupted/);
    server.upstream.open("kill");
    await ask(page, "Are you back?");
    await page.locator(".exchange").nth(1).locator(".answer .md", { hasText: "The whole answer" }).waitFor();
  });

  it("is followed by another tab while it is written", async () => {
    const profile = await newProfile();
    const first = await profile.newPage();
    server.upstream.reply(slowAnswer("Seen by both", "to the end.", "tabs"));
    await ask(first, "Hello from the first tab");
    const sessionId = await untilSession(first);
    const second = await profile.newPage(`/#/c/${sessionId}`);
    await Promise.all([untilAnswer(first, "Seen by both"), untilAnswer(second, "Seen by both")]);
    server.upstream.open("tabs");
    await Promise.all([untilAnswer(first, "to the end."), untilAnswer(second, "to the end.")]);
    await untilIdle(second);
    await ask(second, "And from the second");
    await first.locator(".bubble", { hasText: "And from the second" }).waitFor();
    await untilAnswer(first, "You said: And from the second");
  });

  it("answers anew, asks otherwise, and switches between the versions", async () => {
    const page = await (await newProfile()).newPage();
    server.upstream.reply(answerScript("The first answer."));
    await ask(page, "One question");
    await untilAnswer(page, "The first answer.");
    await untilIdle(page);

    server.upstream.reply(answerScript("The second answer."));
    await page.getByRole("button", { name: "Answer again" }).click();
    await untilAnswer(page, "The second answer.");
    const answers = page.getByRole("group", { name: "Versions of the answer" });
    await answers.getByText("2 / 2").waitFor();
    await answers.getByRole("button", { name: "before" }).click();
    await untilAnswer(page, "The first answer.");
    await answers.getByText("1 / 2").waitFor();

    await page.locator(".bubble").hover();
    await page.getByRole("button", { name: "Edit the question" }).click();
    await page.getByRole("textbox", { name: "Question" }).fill("Another question");
    await page.getByRole("textbox", { name: "Question" }).press("Enter");
    await untilAnswer(page, "You said: Another question");
    const questions = page.getByRole("group", { name: "Versions of the question" });
    await questions.getByText("2 / 2").waitFor();
    await untilIdle(page);
    await questions.getByRole("button", { name: "before" }).click();
    await page.locator(".bubble", { hasText: "One question" }).waitFor();
    // the choice is kept, and so is the branch below it
    await page.reload();
    await page.locator(".bubble", { hasText: "One question" }).waitFor();
    await questions.getByText("1 / 2").waitFor();
  });

  it("asks two models at once; one fails, the other is picked, and the conversation goes on from it", async () => {
    const page = await (await newProfile()).newPage();
    await page.getByRole("button", { name: "Conversation settings" }).click();
    await page.getByRole("checkbox", { name: MODEL }).setChecked(true);
    await page.getByRole("checkbox", { name: OTHER_MODEL }).setChecked(true);
    await page.getByRole("button", { name: "Save" }).click();
    server.upstream.replyWith((request) =>
      request.json?.model === OTHER_MODEL ? refusal() : answerScript(`Good: ${lastText(request)}`),
    );
    await ask(page, "Compare");
    await page.locator(".lane", { hasText: "Good: Compare" }).waitFor();
    await page.locator(".lane .end.is-error").waitFor();
    // The one that answered is where the conversation goes on; a person may say otherwise, and change their mind.
    const good = page.locator(".lane.is-picked", { hasText: "Good: Compare" });
    await good.waitFor();
    await page
      .locator(".lane")
      .filter({ hasNotText: "Good: Compare" })
      .getByRole("button", { name: "Go on from here" })
      .click();
    await good.waitFor({ state: "detached" });
    await page
      .locator(".lane", { hasText: "Good: Compare" })
      .getByRole("button", { name: "Go on from here" })
      .click();
    await good.waitFor();
    await ask(page, "Go on");
    await page.locator(".exchange").nth(1).locator(".lane", { hasText: "Good: Go on" }).waitFor();
    const last = server.upstream.requests.findLast(({ json }) => json?.model === MODEL)!;
    expect(JSON.stringify(last.json?.messages)).toContain("Good: Compare");
  });

  it("keeps the settings of a conversation", async () => {
    const page = await (await newProfile()).newPage();
    await ask(page, "First");
    await untilIdle(page);
    await page.getByRole("button", { name: "Conversation settings" }).click();
    await page.getByLabel("Instructions").fill("Answer in rhymes.");
    await page.getByRole("radio", { name: "High" }).check();
    await page.getByRole("switch", { name: "Clock" }).setChecked(false);
    await page.getByRole("button", { name: "Save" }).click();
    await page.locator("dialog").waitFor({ state: "detached" });
    await page.reload();
    await page.locator(".exchange").first().waitFor();
    await page.getByRole("button", { name: "Conversation settings" }).click();
    await expectValue(page, "Answer in rhymes.");
    expect(await page.getByRole("radio", { name: "High" }).isChecked()).toBe(true);
    expect(await page.getByRole("switch", { name: "Clock" }).isChecked()).toBe(false);
    await page.keyboard.press("Escape");
    await ask(page, "Second");
    await untilAnswer(page, "You said: Second");
    const { json } = server.upstream.requests.at(-1)!;
    expect(JSON.stringify(json?.messages)).toContain("Answer in rhymes.");
    expect(json?.["reasoning_effort"]).toBe("high");
    expect(JSON.stringify(json?.tools ?? [])).not.toContain("clock");
  });

  it("renames, finds, rates and deletes", async () => {
    const page = await (await newProfile()).newPage();
    await ask(page, "Where do the quokkas live?");
    await untilIdle(page);
    const row = page.locator(".session-row.is-current");
    await row.hover();
    await row.getByRole("button", { name: "Rename" }).click();
    await page.getByRole("textbox", { name: "Title of the conversation" }).fill("All about quokkas");
    await page.keyboard.press("Enter");
    await page.locator(".session-row", { hasText: "All about quokkas" }).waitFor();

    await page.getByRole("button", { name: "Good answer" }).click();
    await page.reload();
    await page.locator('button[aria-label="Good answer"][aria-pressed="true"]').waitFor();

    await page.getByRole("searchbox").fill("quokkas live");
    await page
      .locator(".hit mark", { hasText: /quokkas/i })
      .first()
      .waitFor();
    await page.getByRole("searchbox").press("Escape");

    await row.hover();
    await row.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await page.locator(".session-row", { hasText: "All about quokkas" }).waitFor({ state: "detached" });
    await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  });
});

async function expectValue(page: Page, value: string): Promise<void> {
  expect(await page.getByLabel("Instructions").inputValue()).toBe(value);
}

function lastText(request: RecordedRequest): string {
  const content = request.json?.messages?.findLast(({ role }) => role === "user")?.["content"];
  return typeof content === "string" ? content : JSON.stringify(content);
}

/** A search, then a page, then an answer that cites what the search found first. */
function firstConversation(request: RecordedRequest): Script {
  const results = request.json?.messages?.filter(({ role }) => role === "tool").length ?? 0;
  if (!hasToolResult(request) && results === 0)
    return [
      ...reasoningChunks("I look into the documents first."),
      ...toolCallScript({ id: "s1", name: "search", args: { queries: ["Heron lighthouse built"] } }),
    ];
  if (results === 1)
    return toolCallScript({ id: "o1", name: "open_url", args: { urls: [pages.url("/article")] } });
  const text = JSON.stringify(request.json?.messages);
  const number = /\[(\d+)\] [^\n]*/.exec(text)?.[1] ?? "1";
  return answerScript(`It was built in 1874 by Ada Quill [${number}].`);
}

function slowAnswer(before: string, after: string, gateName: string): Script {
  return [...textChunks(`${before} `), gate(gateName), ...textChunks(after), ...finishChunks("stop")];
}

function refusal(): Script {
  return [status(400), send(JSON.stringify({ error: { message: "this model is not for you" } }))];
}
