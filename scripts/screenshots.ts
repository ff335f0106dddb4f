/**
 * Makes the README's pictures (docs/images) from a real run: the server as users start it, a browser, documents that are
 * really searched. Only the model is a script, so that the pictures are the same each time.
 *
 *   npm run screenshots
 */
import { mkdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import type { BrowserContextOptions, Page } from "playwright-core";
import { launchChromium } from "../test/support/chromium.js";
import { startWith } from "../test/support/e2e-fixture.js";
import {
  finishChunks,
  reasoningChunks,
  startScriptedUpstream,
  textChunks,
  toolCallChunks,
  type RecordedRequest,
  type Script,
} from "../test/support/scripted-upstream.js";
import { makeDataDir, removeDataDir } from "../test/support/turnwire-process.js";
import { buildIfStale } from "./build.mjs";

const images = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../docs/images");
const MODELS = ["north-large", "north-small"];

const DOCUMENTS = {
  "Returns and refunds.md": `# Returns and refunds

## How long
Every lamp can be returned within 60 days of delivery, for any reason. Shades that were cut to size are excluded.

## Who pays
We pay for the return parcel within the country: the label is in the box. From abroad the customer pays the postage and
gets it back when the lamp was faulty.

## When the money arrives
Refunds are made within 5 working days of the parcel's arrival, by the means of payment that was used.
`,
  "Shipping.md": `# Shipping

Parcels leave our workshop in Turku each weekday at 15:00. Within the country they take two days, within the European
Union four to six. Lamps above 20 kg travel by freight and are announced by telephone.
`,
  "Care of brass.md": `# Care of brass

Dust with a dry cloth. Never use polish on lacquered brass: it takes the lacquer off. Unlacquered brass darkens with
time; lemon and salt bring the shine back.
`,
};

const QUESTION = "How long do customers have to send a lamp back, and who pays for the parcel?";
const ANSWER = `Customers have **60 days** from delivery, for any reason; shades that were cut to size are excluded {returns}.

| Where the parcel comes from | Who pays |
| --- | --- |
| Within the country | We do: the label is in the box |
| Abroad | The customer, unless the lamp was faulty |

The money is back within **5 working days** of the parcel's arrival {returns}. Parcels from within the European Union are on
their way for four to six days {shipping}, so tell customers to allow about two weeks in all.`;
const SHORT_ANSWER = `Sixty days from delivery, for any reason {returns}.

- **Within the country:** we pay, the label is in the box.
- **From abroad:** the customer pays, and gets it back if the lamp was faulty.

Cut shades cannot be returned {returns}.`;

const upstream = await startScriptedUpstream();
upstream.setModels(MODELS);
upstream.replyWith(play);
await buildIfStale();
const dataDir = makeDataDir();
const server = await startWith(upstream, { dataDir });
const browser = await launchChromium();
mkdirSync(images, { recursive: true });
try {
  const desk = await open({ viewport: { width: 1360, height: 850 }, colorScheme: "light" });
  await addDocuments(desk);
  await converse(desk, QUESTION);
  await desk.locator(".cite button").first().click();
  await desk.locator(".panel mark").waitFor();
  await picture(desk, "conversation-light.png");

  const night = await open({ viewport: { width: 1360, height: 960 }, colorScheme: "dark" });
  await night.getByRole("button", { name: "Conversation settings" }).click();
  for (const model of MODELS) await night.getByRole("checkbox", { name: model }).check();
  await night.getByRole("button", { name: "Save" }).click();
  await converse(night, QUESTION);
  await night.getByRole("button", { name: "Go on from here" }).last().click();
  await night.locator(".lane.is-picked").waitFor();
  await picture(night, "lanes-dark.png");

  const phone = await open({
    viewport: { width: 390, height: 760 },
    deviceScaleFactor: 1.5,
    isMobile: true,
    hasTouch: true,
  });
  await converse(phone, "May shades be returned?");
  await picture(phone, "phone.png");
} finally {
  await browser.close();
  await server.stop();
  await upstream.close();
  removeDataDir(dataDir);
}

async function open(options: BrowserContextOptions): Promise<Page> {
  const context = await browser.newContext({ reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  await page.goto(server.httpUrl);
  await page.locator("#composer-text").waitFor();
  return page;
}

async function addDocuments(page: Page): Promise<void> {
  await page.getByRole("link", { name: "Documents" }).click();
  const files = Object.entries(DOCUMENTS).map(([name, text]) => ({
    name,
    mimeType: "text/markdown",
    buffer: Buffer.from(text),
  }));
  await page.setInputFiles("input[type=file]", files);
  await page
    .locator(".document-row a")
    .nth(files.length - 1)
    .waitFor();
  await picture(page, "documents-light.png");
  await page.getByRole("button", { name: "New conversation" }).click();
}

async function converse(page: Page, question: string): Promise<void> {
  await page.locator("#composer-text").fill(question);
  await page.locator("#composer-text").press("Enter");
  await page.getByRole("button", { name: "Answer again" }).waitFor();
  await page.getByRole("button", { name: "Stop the answer" }).waitFor({ state: "detached" });
}

async function picture(page: Page, name: string): Promise<void> {
  await page.mouse.move(0, 0);
  await page.screenshot({ path: path.join(images, name), animations: "disabled" });
  console.log(`docs/images/${name}`);
}

/** A search, then the answer: the numbers are those that the search gave. */
function play(request: RecordedRequest): Script {
  const results = request.json?.messages?.filter(({ role }) => role === "tool") ?? [];
  if (results.length === 0) {
    const args = { queries: ["return a lamp, days", "who pays return parcel", "shipping time"] };
    return [
      ...reasoningChunks("Returns and postage are house rules: I look them up rather than guess."),
      ...toolCallChunks({ id: "call_1", name: "search", args }),
      ...finishChunks("tool_calls"),
    ];
  }
  const found = String(results[0]!["content"]);
  const numberOf = (title: string): string => new RegExp(`\\[(\\d+)\\] ${title}`).exec(found)?.[1] ?? "1";
  const text = (request.json?.model === MODELS[0] ? ANSWER : SHORT_ANSWER)
    .replaceAll("{returns}", `[${numberOf("Returns and refunds")}]`)
    .replaceAll("{shipping}", `[${numberOf("Shipping")}]`);
  return [...reasoningChunks("The passages answer all of it."), ...textChunks(text), ...finishChunks("stop")];
}
