/** What comes from outside - documents, titles, tools, answers - is text on the page, whatever it says. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, it } from "vitest";
import { describeInChromium } from "../support/chromium.js";
import {
  answerScript,
  reasoningChunks,
  toolCallScript,
  type RecordedRequest,
  type Script,
} from "../support/scripted-upstream.js";
import {
  ask,
  openEverything,
  untilAnswer,
  untilIdle,
  untilSession,
  useProfiles,
  useServer,
} from "./page-fixture.js";

/** Each would open a dialog or call home if anything on the page took it for more than text. `HOME` is an outside address. */
const ATTEMPTS = [
  `<script>alert("script")</script>`,
  `<img src=x onerror='alert("img")'>`,
  `<svg onload='alert("svg")'></svg>`,
  `<iframe srcdoc='<script>parent.alert("frame")</script>'></iframe>`,
  `<a href="javascript:alert('raw')">raw</a>`,
  `[link](javascript:alert("md"))`,
  `[entity](&#106;avascript:alert("entity"))`,
  `[data](data:text/html,<script>alert("data")</script>)`,
  `![image](HOME/pixel.png)`,
  `![svg](data:image/svg+xml,<svg/onload=alert("datasvg")>)`,
  `<link rel=stylesheet href="HOME/style.css">`,
  `<style>body{background:url(HOME/style.png)}</style>`,
  `<math><mtext></mtext><mglyph><style><img src=x onerror='alert("math")'></style></mglyph></math>`,
  `[[1]](javascript:alert("cite"))`,
  `<form action="HOME/form"><button>go</button></form>`,
  "```html\n<script>alert('fence')</script>\n```",
  `<details open ontoggle='alert("toggle")'>x</details>`,
  `&lt;img src=x onerror=alert(1)&gt;`,
  `[ref]: javascript:alert("ref")\n\n[ref]`,
  `<base href="HOME/">`,
  `<meta http-equiv="refresh" content="0;url=HOME/refresh">`,
];

let outside: Server;
let knocks = 0;
let attack = "";
beforeAll(async () => {
  outside = createServer((_, response) => {
    knocks += 1;
    response.setHeader("content-type", "text/html");
    response.end(
      `<title>${attack.slice(0, 200)}</title><body><p>${attack}</p>${"<p>Words that make it an article.</p>".repeat(30)}`,
    );
  });
  await new Promise<void>((resolve) => outside.listen(0, "127.0.0.1", resolve));
  attack = ATTEMPTS.join("\n\n").replaceAll("HOME", `http://localhost:${port()}`);
});
afterAll(() => new Promise((resolve) => outside.close(resolve)));

const port = (): number => (outside.address() as AddressInfo).port;
const server = useServer({ allowHosts: () => [`127.0.0.1:${port()}`] });

describeInChromium("hostile content on the page", (browser) => {
  const newProfile = useProfiles(browser, server);

  it("stays text: in questions, reasoning, tool arguments and output, documents, titles and answers", async () => {
    const profile = await newProfile();
    const page = await profile.newPage("/#/documents");
    await page.setInputFiles("input[type=file]", [
      {
        name: `<img src=x onerror=alert("name")>.md`,
        mimeType: "text/markdown",
        buffer: Buffer.from(`# ${attack}\n\nheron`),
      },
      {
        name: "page.html",
        mimeType: "text/html",
        buffer: Buffer.from(`<title>${ATTEMPTS[1]}</title><body>${attack}<p>heron`),
      },
    ]);
    await page.locator(".document-row a").nth(1).waitFor();
    await page.locator(".document-row a").first().click();
    await page.locator(".document-text").waitFor();

    server.upstream.replyWith((request) => hostileTurn(request));
    await page.getByRole("button", { name: "New conversation" }).click();
    await ask(page, attack);
    await untilAnswer(page, "the end of the attack");
    await untilIdle(page);
    // open whatever opens, so that all of it is drawn
    await openEverything(page);
    const sessionId = await untilSession(page);
    const row = page.locator(".session-row.is-current");
    await row.hover();
    await row.getByRole("button", { name: "Rename" }).click();
    await page
      .getByRole("textbox", { name: "Title of the conversation" })
      .fill(`<img src=x onerror='alert("title")'>`);
    await page.keyboard.press("Enter");
    await page.locator(".session-row", { hasText: "onerror" }).waitFor();
    await page.getByRole("searchbox").fill("onerror");
    await page.locator(".hit mark").first().waitFor();
    const before = knocks;

    // as another tab and after a reload it is drawn from what is stored
    const second = await profile.newPage(`/#/c/${sessionId}`);
    await untilAnswer(second, "the end of the attack");
    await openEverything(second);

    for (const each of [page, second]) {
      expect(
        await each
          .locator("main script, main iframe, main style, main link, main img, main form:not([aria-label])")
          .count(),
      ).toBe(0);
      const targets = await each
        .locator("a")
        .evaluateAll((links) => links.map((link) => link.getAttribute("href") ?? ""));
      expect(targets.filter((href) => !/^(https?:\/\/|#|\/|mailto:)/.test(href))).toEqual([]);
    }
    expect(knocks).toBe(before);
    for (const watch of profile.watches)
      expect(watch).toEqual({ dialogs: [], outsideRequests: [], errors: [] });
  });
});

function hostileTurn(request: RecordedRequest): Script {
  const results = request.json?.messages?.filter(({ role }) => role === "tool").length ?? 0;
  if (results === 0)
    return [
      ...reasoningChunks(attack),
      ...toolCallScript(
        { id: "s", name: "search", args: { queries: ["heron", attack.slice(0, 300)] } },
        { id: "o", name: "open_url", args: { urls: [`http://127.0.0.1:${port()}/article`] } },
        { id: "x", name: "no_such_tool", args: { html: attack } },
      ),
    ];
  return answerScript(`${attack}\n\nIt says so [1]. And this is the end of the attack.`);
}
