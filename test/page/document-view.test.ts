/** A document as a person reads it: drawn, with the cited place marked, and nothing of it does anything. */
import { expect, it } from "vitest";
import type { Page } from "playwright-core";
import { describeInChromium } from "../support/chromium.js";
import { makePdf } from "../support/web-pages.js";
import { useProfiles, useServer } from "./page-fixture.js";

const server = useServer();

const MARKDOWN = `# Returns

Goods may come back within **thirty days**. See [the terms](https://example.com/terms).

1. Pack the goods.
2. Print the label 😀.
3. Bring the parcel to a shop.

| What | Days |
| --- | --- |
| Shoes | 30 |

\`\`\`js
const days = 30;
\`\`\`

![a picture](http://localhost:9/picture.png) <img src=x onerror="alert(1)"> [click](javascript:alert(2))
<script>alert(3)</script>

[data](data:text/html,<script>alert(4)</script>) <iframe src="http://localhost:9/"></iframe>
`;

describeInChromium("a document on the page", (browser) => {
  const newProfile = useProfiles(browser, server);

  /** Adds a file and answers the address of its page. */
  async function add(page: Page, name: string, mimeType: string, buffer: Buffer): Promise<string> {
    await page.setInputFiles("input[type=file]", { name, mimeType, buffer });
    const row = page.locator(".document-row", { hasText: name });
    const link = row.locator("a.document-title");
    await link.waitFor();
    return `${server.origin}/${await link.getAttribute("href")}`;
  }

  it("draws Markdown and marks the cited item of a list, with the keyboard's focus at hand", async () => {
    const page = await (await newProfile()).newPage("/#/documents");
    const requests: string[] = [];
    page.on("request", (request) => requests.push(request.url()));
    const address = await add(page, "Returns", "text/markdown", Buffer.from(MARKDOWN));
    const at = [...MARKDOWN.slice(0, MARKDOWN.indexOf("Print the label"))].length;
    await page.goto(`${address}?at=${at}`);
    const text = page.locator(".document-text");
    await text.locator(".md-h1", { hasText: /^Returns$/ }).waitFor();
    expect(await text.locator("strong").innerText()).toBe("thirty days");
    expect(await text.locator("td").allInnerTexts()).toEqual(["Shoes", "30"]);
    expect(await text.locator("pre").innerText()).toContain("const days = 30;");
    const mark = text.locator("mark");
    expect(await mark.innerText()).toContain("Print the label 😀.");
    expect(await mark.innerText()).not.toContain("Pack the goods.");
    expect(await mark.locator("ol").getAttribute("start")).toBe("2");
    // what could do something is text, or a link to a safe place
    expect(await text.locator("img, script, iframe, svg image").count()).toBe(0);
    const links = await text.locator("a").evaluateAll((all) => all.map((a) => a.getAttribute("href")));
    expect(links.every((href) => /^https?:/.test(href ?? ""))).toBe(true);
    expect(requests.filter((url) => !url.startsWith(server.origin))).toEqual([]);
  });

  it("shows a PDF page by page, and the structure of a web page", async () => {
    const page = await (await newProfile()).newPage("/#/documents");
    const pdf = makePdf(["The first page is here", "The second page is here"], "Two pages");
    await page.setInputFiles("input[type=file]", { name: "a.pdf", mimeType: "application/pdf", buffer: pdf });
    await page.locator("a.document-title", { hasText: "a.pdf" }).click();
    const text = page.locator(".document-text");
    await text.locator(".page-line", { hasText: "Page 2" }).waitFor();
    expect(await text.innerText()).not.toContain("[page");
    await page.goto(`${server.origin}/#/documents`);
    const html = "<title>Web</title><h2>A heading</h2><ul><li>one<li>two</ul><p>And <b>words</b>.";
    const address = await add(page, "Web", "text/html", Buffer.from(html));
    await page.goto(address);
    await text.locator(".md-h2", { hasText: "A heading" }).waitFor();
    expect(await text.locator("li").allInnerTexts()).toEqual(["one", "two"]);
  });
});
