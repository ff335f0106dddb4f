/** A person with 5,000 conversations. */
import { beforeAll, expect, it } from "vitest";
import { describeInChromium } from "../support/chromium.js";
import { runSql } from "../support/postgres.js";
import { answerScript } from "../support/scripted-upstream.js";
import { measureSecondHalf } from "./harness/long-answer.mjs";
import { ask, untilIdle, useProfiles, useServer } from "./page-fixture.js";

const server = useServer();
const SESSIONS = 5_000;

describeInChromium("5,000 conversations", (browser) => {
  const newProfile = useProfiles(browser, server);

  beforeAll(async () => {
    server.upstream.replyWith(() => answerScript("The answer."));
    const page = await (await newProfile()).newPage();
    await ask(page, "The newest question");
    await untilIdle(page);
    await runSql(
      server.databaseUrl,
      `insert into turnwire.sessions
       select (jsonb_populate_record(s, jsonb_build_object('session_id', 'many-' || n, 'title', 'Conversation ' || n,
         'current_message_id', '', 'create_time', s.create_time - n * interval '1 minute',
         'update_time', s.update_time - n * interval '1 minute'))).*
       from turnwire.sessions s, generate_series(1, $1) n`,
      [SESSIONS],
    );
  }, 120_000);

  it("are listed as the reader goes down, in order, without a long task, and are renamed in place", async () => {
    const page = await (await newProfile()).newPage();
    const rows = page.locator(".session-row");
    await rows.nth(49).waitFor();
    expect(await rows.count()).toBe(50); // a page, not all
    const cost = await measureSecondHalf(browser(), page, async () => {
      for (const count of [100, 200, 300, 400, 500])
        while ((await rows.count()) < count) await rows.last().scrollIntoViewIfNeeded();
    });
    expect(cost.longestTaskCpuMs).toBeLessThan(150); // with the browser's own tracing
    if (process.env["TURNWIRE_FIGURES"]) console.log(cost);
    const numbers = (await page.locator(".session-row .session-title").allInnerTexts())
      .flatMap((title) => /^Conversation (\d+)$/.exec(title)?.[1] ?? [])
      .map(Number);
    expect(numbers).toEqual(numbers.map((_, i) => i + 1));

    const row = page.locator(".session-row", { hasText: /^Conversation 30$/ });
    await row.hover();
    await row.getByRole("button", { name: "Rename" }).click();
    await page.getByRole("textbox", { name: "Title of the conversation" }).fill("Another name");
    await page.keyboard.press("Enter");
    await page.locator(".session-row", { hasText: "Another name" }).waitFor();
    expect(await rows.count()).toBeGreaterThanOrEqual(500);
  });
});
