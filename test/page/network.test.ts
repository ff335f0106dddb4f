/** One stream for all tabs of a browser, and what the page does when the network or the server is away. */
import { beforeEach, expect, it, onTestFinished } from "vitest";
import { describeInChromium } from "../support/chromium.js";
import {
  answerScript,
  finishChunks,
  gate,
  textChunks,
  type RecordedRequest,
} from "../support/scripted-upstream.js";
import { startTcpProxy } from "../support/tcp-proxy.js";
import {
  ask,
  untilAnswer,
  untilIdle,
  untilSession,
  useProfiles,
  useServer,
  withoutSharedWorker,
} from "./page-fixture.js";

const server = useServer();

describeInChromium("the page and the network", (browser) => {
  const newProfile = useProfiles(browser, server);

  beforeEach(() => server.upstream.replyWith((request) => answerScript(`You said: ${lastText(request)}`)));

  it("goes on in the other tabs when the tab that held the stream is closed", async () => {
    const profile = await newProfile();
    await withoutSharedWorker(profile.context);
    const leader = await profile.newPage();
    server.upstream.reply([
      ...textChunks("First half, "),
      gate("leader"),
      ...textChunks("second half."),
      ...finishChunks("stop"),
    ]);
    await ask(leader, "Do not stop");
    const sessionId = await untilSession(leader);
    const other = await profile.newPage(`/#/c/${sessionId}`);
    await untilAnswer(other, "First half,");
    await leader.close();
    server.upstream.open("leader");
    await untilAnswer(other, "First half, second half.");
  });

  it("says that the network is lost, keeps what is sent, and sends it once when it is back", async () => {
    // The proxy is the network of the worker, which the browser's own emulation does not reach.
    const network = await startTcpProxy(Number(new URL(server.origin).port));
    onTestFinished(() => network.close());
    const profile = await newProfile();
    const page = await profile.newPage("/", `http://127.0.0.1:${network.port}`);
    await ask(page, "Before the loss");
    await untilIdle(page);
    network.refuse();
    network.cut();
    await profile.context.setOffline(true);
    await page.getByText("No connection to the server.").waitFor();
    await ask(page, "Written without a network");
    await page.locator(".pending-line", { hasText: "Waits for the network" }).waitFor();
    network.allow();
    await profile.context.setOffline(false);
    await page.getByText("No connection to the server.").waitFor({ state: "detached" });
    await untilAnswer(page, "You said: Written without a network");
    expect(countOf("Written without a network")).toBe(1);
    expect(await page.locator(".bubble", { hasText: "Written without a network" }).count()).toBe(1);
  });

  it("offers a newer page once the server delivers one", async () => {
    const network = await startTcpProxy(Number(new URL(server.origin).port));
    onTestFinished(() => network.close());
    const origin = `http://127.0.0.1:${network.port}`;
    const page = await (await newProfile()).newPage("/", origin);
    await ask(page, "Connected");
    await untilIdle(page);
    const body = `<script type="module" src="/assets/another-build.js"></script>`;
    await page.route(`${origin}/`, (route) => route.fulfill({ contentType: "text/html", body }));
    network.cut();
    await page.getByText("A newer version of this page is here.").waitFor();
  });

  it("sends after a reload what could not be sent before it", async () => {
    const profile = await newProfile();
    const page = await profile.newPage();
    await page.route("**/StartTurn", (route) => route.abort());
    await ask(page, "Kept in the browser");
    await page.locator(".is-pending", { hasText: "Kept in the browser" }).waitFor();
    await page.reload(); // only then is the way free: else it may be sent just before
    await page.unroute("**/StartTurn");
    await untilAnswer(page, "You said: Kept in the browser");
    expect(countOf("Kept in the browser")).toBe(1);
  });

  it("goes to the conversation that a message has made, whichever tab could send it", async () => {
    const profile = await newProfile();
    const page = await profile.newPage();
    await page.route("**/StartTurn", (route) => route.abort());
    const other = await profile.newPage();
    await ask(page, "Sent by the other tab");
    await untilAnswer(page, "You said: Sent by the other tab");
    await other.getByRole("link", { name: "Sent by the other tab" }).waitFor();
    expect(await other.locator(".bubble").count()).toBe(0); // there it was not written
    expect(countOf("Sent by the other tab")).toBe(1);
  });

  it("keeps order: what is sent while an answer is written is asked after it", async () => {
    const page = await (await newProfile()).newPage();
    server.upstream.reply([
      ...textChunks("Slow one, "),
      gate("order"),
      ...textChunks("done."),
      ...finishChunks("stop"),
    ]);
    await ask(page, "First");
    await untilAnswer(page, "Slow one,");
    await ask(page, "Second");
    await page.locator(".is-pending", { hasText: "Second" }).waitFor();
    server.upstream.open("order");
    await untilAnswer(page, "You said: Second");
    expect(await page.locator(".bubble").allInnerTexts()).toEqual([
      expect.stringContaining("First"),
      expect.stringContaining("Second"),
    ]);
  });
});

describeInChromium("the page of a server with tokens", (browser) => {
  const locked = useServer({ env: { TURNWIRE_TOKENS: "secret-one=acme/ada" } });
  const newProfile = useProfiles(browser, locked);

  it("asks for a token, refuses a wrong one, and signs in and out", async () => {
    locked.upstream.replyWith(() => answerScript("Welcome."));
    const page = await (await newProfile()).newPage();
    await page.getByLabel("Token").fill("wrong");
    await page.keyboard.press("Enter");
    await page.getByText("did not accept the token").waitFor();
    await page.getByLabel("Token").fill("secret-one");
    await page.keyboard.press("Enter");
    await ask(page, "Let me in");
    await untilAnswer(page, "Welcome.");
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: "Sign in to Turnwire" }).waitFor();
  });
});

function countOf(text: string): number {
  return server.upstream.requests.filter((request) => lastText(request) === text).length;
}

function lastText(request: RecordedRequest): string {
  const content = request.json?.messages?.findLast(({ role }) => role === "user")?.["content"];
  return typeof content === "string" ? content : JSON.stringify(content);
}
