/** The turn components in a real browser: what they show, what they let through, how they are used without a mouse. */
import { readFileSync } from "node:fs";
import path from "node:path";
import type { JsonValue } from "@bufbuild/protobuf";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { describeInChromium, watchPage, type PageWatch } from "../support/chromium.js";
import type { Harness } from "./harness/harness.js";
import { serveHarness } from "./harness/serve.mjs";

declare const window: { readonly harness: Harness };

let origin = "";
let closeServer: () => Promise<void>;

beforeAll(async () => {
  ({ origin, close: closeServer } = await serveHarness());
});
afterAll(() => closeServer());

/** What the golden turns that did not complete say of their end. */
const ENDS: Readonly<Record<string, string>> = {
  stopped: "Stopped.",
  deadline: "The time for this answer ran out.",
  interrupted: "The answer was interrupted: the process that wrote it was lost.",
  "two-lanes": "The model provider limits the rate, try again later.",
};

/** Writes packets of a turn as JSON, numbered. */
class Packets {
  #seq = 0;

  turn(lanes = 1): JsonValue[] {
    const infos = Array.from({ length: lanes }, (_, modelIndex) => ({
      modelIndex,
      modelId: `model-${modelIndex}`,
      displayName: `Model ${modelIndex}`,
      assistantMessageId: `message-${modelIndex}`,
    }));
    return [
      { seq: ++this.#seq, placement: {}, turnStarted: { turnId: "turn-1", lanes: infos } },
      ...infos.flatMap(({ modelIndex }) => [
        this.at([0, 0, modelIndex], "laneStarted", {}),
        this.at([0, 0, modelIndex], "cycleStarted", { cycle: 1, attempt: 1 }),
      ]),
    ];
  }

  at(
    [turnIndex = 0, tabIndex = 0, modelIndex = 0]: readonly number[],
    kind: string,
    value: JsonValue,
  ): JsonValue {
    return { seq: ++this.#seq, placement: { turnIndex, tabIndex, modelIndex }, [kind]: value };
  }

  /** An answer that is still open, or whole. */
  answer(
    index: number,
    text: string,
    options: { readonly lane?: number; readonly open?: boolean } = {},
  ): JsonValue[] {
    const place = [index, 0, options.lane ?? 0];
    return [
      this.at(place, "agentResponseStart", {}),
      this.at(place, "agentResponseDelta", { content: text }),
      ...(options.open ? [] : [this.at(place, "agentResponseDone", { kind: "ANSWER_KIND_ANSWER" })]),
    ];
  }

  search(
    index: number,
    tab: number,
    callId: string,
    documents: JsonValue[],
    modelText = "found",
  ): JsonValue[] {
    const place = [index, tab];
    return [
      this.at(place, "toolCallStart", { callId, toolName: "search", displayName: "Search" }),
      this.at(place, "toolCallReady", { callId, argumentsJson: '{"query":"rain"}', argumentsValid: true }),
      this.at(place, "searchToolStart", {}),
      this.at(place, "searchToolQueriesDelta", { queries: ["rain"] }),
      this.at(place, "searchToolDocumentsDelta", { documents }),
      this.at(place, "toolCallResult", { callId, status: "TOOL_CALL_STATUS_OK", modelText, documents }),
      this.at(place, "sectionEnd", { status: "SECTION_STATUS_OK", durationMs: 420 }),
    ];
  }

  end(lanes = 1): JsonValue[] {
    return [
      ...Array.from({ length: lanes }, (_, i) =>
        this.at([0, 0, i], "laneEnd", { outcome: "TURN_OUTCOME_COMPLETED" }),
      ),
      { seq: ++this.#seq, placement: {}, overallStop: { outcome: "TURN_OUTCOME_COMPLETED" } },
    ];
  }
}

describeInChromium("turn in the page", (browser: () => Browser) => {
  let page: Page;
  let watch: PageWatch;
  let packets: Packets;
  const show = (json: readonly JsonValue[]): Promise<void> =>
    page.evaluate((packets) => window.harness.show(packets), JSON.stringify(json));

  beforeEach(async () => {
    page = await browser().newPage();
    watch = watchPage(page, origin);
    await page.goto(origin);
    await page.waitForFunction(() => "harness" in window);
    packets = new Packets();
  });
  afterEach(async () => {
    await page.close();
    expect(watch).toEqual({ dialogs: [], outsideRequests: [], errors: [] });
  });

  it("draws every golden turn", async () => {
    for (const name of [
      "answer",
      "tools",
      "reset",
      "stopped",
      "deadline",
      "interrupted",
      "refused-call",
      "two-lanes",
    ]) {
      const file = path.join(import.meta.dirname, `../golden/${name}.json`);
      const golden = JSON.parse(readFileSync(file, "utf8")) as { packets: JsonValue[] };
      await page.evaluate(() => window.harness.clear());
      await show(golden.packets);
      expect(await page.locator(".lane").count(), name).toBeGreaterThan(0);
      expect(await page.locator('[aria-busy="true"]').count(), name).toBe(0);
      expect((await page.locator(".end strong").allTextContents()).join(" "), name).toBe(ENDS[name] ?? "");
    }
  });

  it("opens a citation's source from its number and from the list below", async () => {
    const documents = [
      { documentId: "d1", title: "The weather", url: "https://example.com/w", citationNumber: 1 },
    ];
    await show([
      ...packets.turn(),
      ...packets.search(0, 0, "call-1", documents),
      packets.at([1], "agentResponseStart", {}),
      packets.at([1], "citationInfo", { citationNumber: 1, documentId: "d1" }),
      packets.at([1], "agentResponseDelta", {
        content: "It rains [[1]](https://example.com/w), as [1] says; [2] and `[1]` are words.",
      }),
      packets.at([1], "agentResponseDone", { kind: "ANSWER_KIND_ANSWER" }),
      ...packets.end(),
    ]);
    const chips = page.getByRole("button", { name: "Source 1: The weather" });
    expect(await chips.count()).toBe(2);
    expect(await page.locator(".text").textContent()).toBe("It rains 1, as 1 says; [2] and [1] are words.");
    await chips.first().click();
    await page.getByRole("list", { name: "Sources" }).getByRole("button", { name: "The weather" }).click();
    expect(await page.evaluate(() => window.harness.calls())).toEqual([
      ["citation", 1, "The weather"],
      ["citation", 1, "The weather"],
    ]);
  });

  it("shows a running search with its queries, and closes the card when it is over", async () => {
    await show(packets.turn());
    const all = packets.search(0, 0, "call-1", [{ documentId: "d1", title: "Rain", snippet: "It rains." }]);
    await show(all.slice(0, 5));
    const card = page.getByRole("button", { name: /^Searching documents for “rain”/ });
    expect(await card.getAttribute("aria-expanded")).toBe("true");
    expect(await page.getByRole("list", { name: "Queries" }).textContent()).toBe("rain");
    expect(await page.getByRole("list", { name: "Documents found" }).textContent()).toContain("It rains.");
    await show(all.slice(5));
    const done = page.getByRole("button", { name: /^Searched documents for “rain” 1 result, 0.4 s/ });
    expect(await done.getAttribute("aria-expanded")).toBe("false");
    await done.press("Enter");
    expect(await done.getAttribute("aria-expanded")).toBe("true");
    await page.getByRole("button", { name: "Rain", exact: true }).click();
    expect(await page.evaluate(() => window.harness.calls())).toEqual([["document", "Rain"]]);
  });

  it("puts parallel calls into tabs that the arrow keys reach", async () => {
    await show([
      ...packets.turn(),
      ...packets.search(0, 0, "call-1", []),
      packets.at([0, 1], "toolCallStart", { callId: "call-2", toolName: "other", displayName: "Other" }),
      packets.at([0, 1], "toolCallReady", {
        callId: "call-2",
        argumentsJson: '{"a":1}',
        argumentsValid: true,
      }),
      packets.at([0, 1], "toolCallResult", {
        callId: "call-2",
        status: "TOOL_CALL_STATUS_ERROR",
        modelText: "no luck",
      }),
      packets.at([0, 1], "sectionEnd", { status: "SECTION_STATUS_ERROR", message: "It broke" }),
    ]);
    const tabs = page.getByRole("tab");
    expect(await tabs.count()).toBe(2);
    expect(await tabs.nth(0).getAttribute("aria-selected")).toBe("true");
    await tabs.nth(0).press("ArrowRight");
    expect(await tabs.nth(1).getAttribute("aria-selected")).toBe("true");
    expect(await page.evaluate("document.activeElement.getAttribute('aria-selected')")).toBe("true");
    const panel = page.getByRole("tabpanel");
    await panel.getByRole("button", { expanded: false }).click();
    expect(await panel.textContent()).toMatch(/failed.*It broke.*"a": 1.*no luck/s);
  });

  it("folds reasoning away under how long it took", async () => {
    await show([...packets.turn(), packets.at([0], "reasoningStart", {})]);
    await show([packets.at([0], "reasoningDelta", { reasoning: "First line.\nSecond **line**" })]);
    const thinking = page.getByRole("button", { name: /^Thinking/ });
    expect(await thinking.textContent()).toBe("ThinkingSecond line");
    await show([packets.at([0], "reasoningDone", { durationMs: 3_240 })]);
    const thought = page.getByRole("button", { name: "Thought for 3.2 s" });
    expect(await page.getByText("First line.").count()).toBe(0);
    await thought.click();
    expect(await page.getByText("First line.").count()).toBe(1);
  });

  it("shows lanes side by side, each with its own end, and lets one be picked", async () => {
    const error = { code: "ERROR_CODE_RATE_LIMIT", message: "the provider limits the rate", retryable: true };
    await show([
      ...packets.turn(2),
      ...packets.answer(0, "The answer.", { lane: 0 }),
      ...packets.answer(0, "Half of", { lane: 1 }),
      packets.at([0, 0, 0], "laneEnd", { outcome: "TURN_OUTCOME_COMPLETED" }),
      packets.at([0, 0, 1], "laneEnd", { outcome: "TURN_OUTCOME_ERROR", error }),
    ]);
    const first = page.getByRole("article", { name: "Model 0" });
    const second = page.getByRole("article", { name: "Model 1" });
    const [left, right] = [await first.boundingBox(), await second.boundingBox()];
    expect(left!.y).toBe(right!.y);
    expect(left!.x + left!.width).toBeLessThan(right!.x);
    expect(await second.textContent()).toMatch(
      /Half of.*The provider limits the rate\. Wait a moment and try again/s,
    );
    await first.getByRole("button", { name: "Go on from here" }).click();
    await page.evaluate(() => window.harness.pick("message-0"));
    expect(await first.getByRole("button", { name: "Goes on from here" }).getAttribute("aria-pressed")).toBe(
      "true",
    );
    await second.getByRole("button", { name: "Try again" }).click();
    expect(await page.evaluate(() => window.harness.calls())).toEqual([
      ["pick", "message-0"],
      ["retry", "model-1"],
    ]);
    await page.setViewportSize({ width: 390, height: 800 });
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(390);
  });

  it("draws again only what changed", async () => {
    await show([
      ...packets.turn(),
      ...packets.search(0, 0, "call-1", []),
      ...packets.answer(1, "One paragraph.\n\n- a\n- b\n\nThe open e", { open: true }),
    ]);
    await page.evaluate(`
      window.changed = [];
      new MutationObserver((records) => {
        for (const { target } of records) {
          const element = target.nodeType === 1 ? target : target.parentElement;
          window.changed.push(element.closest(".md > *, .tool")?.tagName ?? element.className);
        }
      }).observe(document.querySelector(".turn"), { subtree: true, childList: true, characterData: true });
      window.first = document.querySelector(".md > p");`);
    await show([packets.at([1], "agentResponseDelta", { content: "nd **grows" })]);
    await show([packets.at([1], "agentResponseDelta", { content: " and** grows.\n\nNext" })]);
    expect(await page.locator(".md").textContent()).toBe("One paragraph.abThe open end grows and grows.Next");
    expect(await page.evaluate("window.first === document.querySelector('.md > p')")).toBe(true);
    const changed = (await page.evaluate("[...new Set(window.changed)]")) as string[];
    expect(changed.sort()).toEqual(["P", "md is-open"]);
  });

  it("looks right at every character of an answer", async () => {
    const text =
      "**Bold** and `code` with [a link](https://example.com/long/address).\n\n| A | B |\n|---|---|\n| 1 | *2* |\n\n```js\nlet a = 1;\n```\n\n- *one*\n- two\n";
    await show([...packets.turn(), packets.at([0], "agentResponseStart", {})]);
    const seen = new Set<string>();
    for (const char of text) {
      await show([packets.at([0], "agentResponseDelta", { content: char })]);
      seen.add((await page.locator(".md").textContent()) ?? "");
    }
    const odd = [...seen].filter((shown) => /\*\*|`|\]\(|\||https:/.test(shown));
    expect(odd).toEqual([]);
  });

  it("tells a screen reader whole sentences, and the end", async () => {
    await page.clock.install();
    await show([...packets.turn(), ...packets.answer(0, "It rains. And it will", { open: true })]);
    const log = page.getByRole("log");
    expect(await log.getAttribute("aria-live")).toBe("polite");
    await show([packets.at([0], "agentResponseDelta", { content: " go on. Per" })]);
    expect(await log.textContent()).toBe("");
    await page.clock.runFor(2_600);
    expect(await log.textContent()).toBe("And it will go on.");
    await show([
      packets.at([0], "agentResponseDelta", { content: "haps." }),
      packets.at([0], "agentResponseDone", { kind: "ANSWER_KIND_ANSWER" }),
      ...packets.end(),
    ]);
    await page.clock.runFor(100);
    expect(await log.textContent()).toBe("Perhaps. The answer is complete.");
  });

  it("shows nothing hostile as anything but text", async () => {
    await page.evaluate("window.owned = 0");
    const evil = [
      `<img src="https://evil.example/i.png" onerror="owned=1">`,
      `<script>owned=1;alert(1)</script>`,
      `<svg onload="alert(2)"><a xlink:href="javascript:alert(3)">x</a></svg>`,
      `<iframe srcdoc="<script>parent.owned=1</script>"></iframe>`,
      `<style>@import url(https://evil.example/s.css);</style><link rel=stylesheet href=https://evil.example/l.css>`,
    ].join("\n\n");
    const markdown = [
      evil,
      `![tracker](https://evil.example/pixel.png) ![x](javascript:alert(4)) ![y](data:image/svg+xml,<svg/onload=alert(5)>)`,
      `[click](javascript:alert(6)) [click](JaVa\tScript:alert(7)) [click](data:text/html,<script>alert(8)</script>)`,
      `[click](  javascript:alert(9)) [click](&#106;avascript:alert(10)) [click](vbscript:x) [click](file:///etc/passwd) <javascript:alert(11)>`,
      `[ref][r] [1](https://evil.example/"onmouseover="alert(12)) <https://evil.example/"><img/src=x/onerror=alert(13)>>`,
      `[r]: javascript:alert(14) "title"`,
      "```html\n<img src=x onerror=alert(15)>\n```",
      `| <img src=x onerror=alert(16)> | b |\n|---|---|\n| [c](javascript:alert(17)) | ${evil.replaceAll("\n", " ")} |`,
      `# <img src=https://evil.example/h.png>`,
      `- [ ] <video src=https://evil.example/v.mp4 autoplay>`,
      `**[[1]](javascript:alert(18))**`,
    ].join("\n\n");
    const document = {
      documentId: "d1",
      title: evil,
      url: "javascript:alert(20)",
      snippet: evil,
      source: evil,
      citationNumber: 1,
    };
    await show([
      ...packets.turn(),
      packets.at([0], "reasoningStart", {}),
      packets.at([0], "reasoningDelta", { reasoning: markdown }),
      packets.at([0], "reasoningDone", {}),
      ...packets.search(1, 0, "call-1", [document], evil),
      packets.at([2, 0], "toolCallStart", { callId: "c2", toolName: evil, displayName: evil }),
      packets.at([2, 0], "toolCallReady", {
        callId: "c2",
        argumentsJson: JSON.stringify({ evil }),
        argumentsValid: true,
      }),
      packets.at([2, 0], "customToolDelta", {
        toolName: evil,
        responseType: "CUSTOM_TOOL_RESPONSE_TYPE_JSON",
        data: JSON.stringify([evil]),
      }),
      packets.at([2, 0], "customToolDelta", {
        toolName: evil,
        data: evil,
        error: { message: evil, isAuthError: true },
      }),
      packets.at([2, 0], "toolCallResult", {
        callId: "c2",
        status: "TOOL_CALL_STATUS_ERROR",
        modelText: evil,
      }),
      packets.at([2, 0], "sectionEnd", { status: "SECTION_STATUS_ERROR", message: evil }),
      packets.at([3, 0], "toolCallStart", { callId: "c3", toolName: "open_url" }),
      packets.at([3, 0], "openUrlStart", {}),
      packets.at([3, 0], "openUrlUrls", {
        urls: ["javascript:alert(21)", `https://evil.example/"><img src=x>`],
      }),
      packets.at([3, 0], "openUrlDocuments", { documents: [document] }),
      packets.at([4], "agentResponseStart", {}),
      packets.at([4], "citationInfo", { citationNumber: 1, documentId: "d1" }),
    ]);
    for (let at = 0; at < markdown.length; at += 7)
      await show([packets.at([4], "agentResponseDelta", { content: markdown.slice(at, at + 7) })]);
    await show([packets.at([4], "agentResponseDone", { kind: "ANSWER_KIND_ANSWER" })]);
    const closed = page.getByRole("button", { expanded: false });
    while ((await closed.count()) > 0) await closed.first().click();

    const found = await page.evaluate(`({
      owned: window.owned,
      elements: document.querySelectorAll(".turn :is(img, script, iframe, svg:not(.icon), style, link, video, object, embed, form, base, meta)").length,
      handlers: [...document.querySelectorAll(".turn *")].filter((e) => e.getAttributeNames().some((n) => n.startsWith("on"))).length,
      links: [...document.querySelectorAll(".turn a")].map((a) => [a.protocol, a.rel, a.target]),
    })`);
    const { links, ...rest } = found as { links: [string, string, string][] };
    expect(rest).toEqual({ owned: 0, elements: 0, handlers: 0 });
    expect(links.length).toBeGreaterThan(0);
    for (const link of links)
      expect(link).toEqual([
        expect.stringMatching(/^(https?|mailto):$/),
        "noopener noreferrer nofollow",
        "_blank",
      ]);
    expect(await page.locator(".turn").textContent()).toContain("<script>owned=1;alert(1)</script>");
    // The watch in afterEach: no dialog, no request to anywhere else.
  });
});
