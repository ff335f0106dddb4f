/** What a reader sees while things break: nothing that was shown goes away, nothing doubles, and the words are true. */
import type { Page } from "playwright-core";
import { beforeEach, expect, it, onTestFinished } from "vitest";
import { describeInChromium } from "../support/chromium.js";
import {
  answerScript,
  finishChunks,
  gate,
  reasoningChunks,
  textChunks,
  type RecordedRequest,
} from "../support/scripted-upstream.js";
import { startTcpProxy } from "../support/tcp-proxy.js";
import { ask, untilAnswer, untilIdle, useProfiles, useServer } from "./page-fixture.js";

const server = useServer();

describeInChromium("the page and losses", (browser) => {
  const newProfile = useProfiles(browser, server);

  beforeEach(() => server.upstream.replyWith((request) => answerScript(`You said: ${lastText(request)}`)));

  it("takes no message away while the server is killed and comes back", async () => {
    const page = await (await newProfile()).newPage();
    await ask(page, "An older question");
    await untilIdle(page);
    server.upstream.reply([...textChunks("What is written now"), gate("flicker"), ...finishChunks("stop")]);
    await ask(page, "Survive this");
    await untilAnswer(page, "What is written now");
    const removed = await watchRemovals(page);
    await server.kill9();
    await page.getByText("No connection to the server.").waitFor();
    await server.restart();
    await page.getByText("No connection to the server.").waitFor({ state: "detached" });
    await untilIdle(page);
    server.upstream.open("flicker");
    await ask(page, "Are you back?");
    await untilAnswer(page, "You said: Are you back?");
    await untilIdle(page);
    expect(await removed()).toEqual([]);
  });

  it("stops the clock of what runs while nothing is heard", async () => {
    const network = await startTcpProxy(Number(new URL(server.origin).port));
    onTestFinished(() => network.close());
    const page = await (await newProfile()).newPage("/", `http://127.0.0.1:${network.port}`);
    await page.clock.install();
    server.upstream.reply([
      ...reasoningChunks("Let me think"),
      gate("clock"),
      ...textChunks("Thought through."),
      ...finishChunks("stop"),
    ]);
    await ask(page, "Think long");
    await page.locator(".reasoning.is-running").waitFor();
    await page.clock.runFor(5_000);
    const elapsed = page.locator(".reasoning .elapsed");
    await elapsed.waitFor();
    network.refuse();
    await page.getByText("No connection to the server.").waitFor();
    const before = await elapsed.innerText();
    await page.clock.runFor(60_000);
    expect(await elapsed.innerText()).toBe(before);
    network.allow();
    server.upstream.open("clock");
    await page.clock.runFor(10_000);
    await untilAnswer(page, "Thought through.");
  });
});

/** Watches for messages that are taken out of the page or hidden, from now on. What it has seen, when it is asked. */
async function watchRemovals(page: Page): Promise<() => Promise<string[]>> {
  await page.evaluate(() => {
    const removed: string[] = [];
    const MESSAGE = ".exchange, .bubble, .answer";
    const note = (node: Node): void => {
      if (!(node instanceof Element)) return;
      const found = node.matches(MESSAGE) ? [node] : [...node.querySelectorAll(MESSAGE)];
      // what was on its way is taken over by what has arrived, in the same moment
      for (const each of found)
        if (!each.closest(".is-pending") && !each.querySelector(".is-pending"))
          removed.push(each.outerHTML.slice(0, 200));
    };
    new MutationObserver((records) => {
      for (const { removedNodes } of records) removedNodes.forEach(note);
    }).observe(document.body, { childList: true, subtree: true });
    Object.assign(window, { removed });
  });
  return () => page.evaluate(() => (window as unknown as { removed: string[] }).removed);
}

function lastText(request: RecordedRequest): string {
  const content = request.json?.messages?.findLast(({ role }) => role === "user")?.["content"];
  return typeof content === "string" ? content : JSON.stringify(content);
}
