/** A conversation of 2,000 messages with long answers among them: opened at its end, read upwards, searched, within bounds. */
import { create, toBinary } from "@bufbuild/protobuf";
import type { Page } from "playwright-core";
import { beforeAll, expect, it } from "vitest";
import { AnswerKind } from "../../gen/turnwire/packet/v1/answer_pb.js";
import { BlockStatus, LaneStateSchema } from "../../gen/turnwire/chat/v1/turn_state_pb.js";
import { TurnOutcome, UserInputSchema } from "../../gen/turnwire/packet/v1/common_pb.js";
import { describeInChromium } from "../support/chromium.js";
import { runSql } from "../support/postgres.js";
import { answerScript } from "../support/scripted-upstream.js";
import { longMarkdown, measureSecondHalf } from "./harness/long-answer.mjs";
import { ask, untilAnswer, untilIdle, untilSession, useProfiles, useServer } from "./page-fixture.js";

const server = useServer();
const MESSAGES = 2_000;
/** One answer in so many is of 40 KB. */
const LONG_EVERY = 20;
const LONG_CHARS = 40_000;

describeInChromium("a long conversation", (browser) => {
  const newProfile = useProfiles(browser, server);
  let sessionId = "";

  beforeAll(async () => {
    server.upstream.replyWith(() => answerScript("The last answer of all."));
    const page = await (await newProfile()).newPage();
    await ask(page, "The first question of all");
    await untilIdle(page);
    sessionId = await untilSession(page);
    await addMessages(sessionId);
    await page.reload();
    await ask(page, "The last question of all");
    await untilAnswer(page, "The last answer of all.");
    await untilIdle(page);
  }, 120_000);

  it("opens at its end, shows what is above when the reader goes there, and stays where they read", async () => {
    const page = await (await newProfile()).newPage();
    const openMs = await opened(page, sessionId, "The last question of all");
    const loaded = await page.locator(".exchange").count();
    expect(loaded).toBeLessThan(100); // the newest page, not the whole
    let moves: number[] = [];
    const cost = await measureSecondHalf(browser(), page, async () => {
      moves = await scrollUp(page, 30);
    });
    expect(Math.max(...moves)).toBeLessThan(3); // pixels: what is read stays where it is
    expect(cost.longestTaskCpuMs).toBeLessThan(150); // with the browser's own tracing; a whole page of answers takes a second
    if (process.env["TURNWIRE_FIGURES"]) console.log({ openMs, loaded, ...cost });

    expect(await movedByOlder(page)).toBeLessThan(3);
    expect(await page.locator(".exchange").count()).toBeLessThan(200);
  });

  it("jumps from a search hit to a message far up", async () => {
    const page = await (await newProfile()).newPage();
    await opened(page, sessionId, "The last question of all");
    // the address that a hit of the search leads to
    await page.evaluate((hash) => (location.hash = hash), `#/c/${sessionId}?m=${sessionId}-34`);
    await page.locator(".bubble", { hasText: "needle-17" }).waitFor();
    await page.waitForFunction((text) => {
      const bubble = [...document.querySelectorAll(".bubble")].find((each) =>
        each.textContent?.includes(text),
      );
      const top = bubble?.getBoundingClientRect().top ?? -1;
      return top >= 0 && top < innerHeight;
    }, "needle-17");
    expect(await page.locator(".exchange").count()).toBeGreaterThan(MESSAGES / 2 - 50);
  });
});

async function opened(page: Page, sessionId: string, text: string): Promise<number> {
  await page.evaluate((hash) => {
    (window as unknown as { startMs: number }).startMs = performance.now();
    location.hash = hash;
  }, `#/c/${sessionId}`);
  await page.locator(".bubble", { hasText: text }).waitFor();
  return page.evaluate(() => performance.now() - (window as unknown as { startMs: number }).startMs);
}

/** Scrolls up by half a screen, frame by frame; what was read moves by so much and no more. The differences, in pixels. */
function scrollUp(page: Page, steps: number): Promise<number[]> {
  return page.evaluate(async (count) => {
    const box = document.querySelector(".chat-scroll")!;
    const frame = (): Promise<void> => new Promise((resolve) => requestAnimationFrame(() => resolve()));
    const off: number[] = [];
    for (let i = 0; i < count; i += 1) {
      box.scrollTop -= box.clientHeight / 2;
      await frame();
      await frame();
      const middle = box.getBoundingClientRect().top + box.clientHeight / 4;
      const read = document.elementFromPoint(box.getBoundingClientRect().left + box.clientWidth / 2, middle);
      if (!read) continue;
      const top = read.getBoundingClientRect().top;
      for (let wait = 0; wait < 10; wait += 1) await frame();
      if (read.isConnected && read.closest(".exchange-slot") && !read.matches(".exchange-slot"))
        off.push(Math.abs(read.getBoundingClientRect().top - top));
    }
    return off;
  }, steps);
}

/** Goes to the very beginning: by how many pixels what is there moves when older messages are put in above it. */
function movedByOlder(page: Page): Promise<number> {
  return page.evaluate(async () => {
    const box = document.querySelector(".chat-scroll")!;
    const first = (): Element => document.querySelector(".exchange")!;
    const frames = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i += 1) await new Promise((resolve) => requestAnimationFrame(resolve));
    };
    for (;;) {
      box.scrollTop = 0;
      await frames(2);
      const read = first();
      const { top } = read.getBoundingClientRect();
      await frames(60);
      // they may also have come just before the look at the first
      if (first() !== read) return Math.abs(read.getBoundingClientRect().top - top);
    }
  });
}

/** Puts messages below the session's last one, as if they had been said. */
async function addMessages(sessionId: string): Promise<void> {
  const [session] = await runSql(
    server.databaseUrl,
    "select tenant_id, user_id, current_message_id from turnwire.sessions where session_id = $1",
    [sessionId],
  );
  const { tenant_id: tenant, user_id: user, current_message_id: end } = session!;
  const rows = Array.from({ length: MESSAGES }, (_, n) => ({
    id: `${sessionId}-${n}`,
    parent: n === 0 ? end : `${sessionId}-${n - 1}`,
    turn: `turn-${sessionId}-${n >> 1}`,
    role: 1 + (n % 2),
    input: n % 2 === 0 ? hex(inputOf(n >> 1)) : null,
    answer: n % 2 === 1 ? hex(answerOf(n >> 1, `${sessionId}-${n}`)) : null,
  }));
  await runSql(
    server.databaseUrl,
    `insert into turnwire.messages
       (message_id, session_id, tenant_id, user_id, parent_message_id, turn_id, model_index, role, input, answer)
     select id, $1, $2, $3, parent, turn, case role when 2 then 0 end, role, decode(input, 'hex'), decode(answer, 'hex')
     from jsonb_to_recordset($4::jsonb) as r (id text, parent text, turn text, role smallint, input text, answer text)`,
    [sessionId, tenant, user, JSON.stringify(rows)],
  );
  await runSql(
    server.databaseUrl,
    "update turnwire.sessions set current_message_id = $2 where session_id = $1",
    [sessionId, rows.at(-1)!.id],
  );
}

function inputOf(n: number): Uint8Array {
  return toBinary(UserInputSchema, create(UserInputSchema, { text: `Question needle-${n}` }));
}

function answerOf(n: number, messageId: string): Uint8Array {
  const text =
    n % LONG_EVERY === 0 ? longMarkdown(LONG_CHARS) : `Answer ${n}. ${"Some words of it. ".repeat(20)}`;
  return toBinary(
    LaneStateSchema,
    create(LaneStateSchema, {
      modelId: "scripted",
      assistantMessageId: messageId,
      text,
      started: true,
      end: { outcome: TurnOutcome.COMPLETED },
      blocks: [
        {
          placement: {},
          firstSeq: 2,
          lastSeq: 3,
          status: BlockStatus.DONE,
          block: { case: "answer", value: { text, kind: AnswerKind.ANSWER } },
        },
      ],
    }),
  );
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}
