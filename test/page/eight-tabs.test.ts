/** Eight tabs of one browser over HTTP/1.1, which allows six connections: a stop leaves the browser all the same. Times: runs alone. */
import { expect, it } from "vitest";
import { describeInChromium } from "../support/chromium.js";
import { finishChunks, gate, textChunks, type Script } from "../support/scripted-upstream.js";
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
const TABS = 8;
const STOP_MS = 1_000;

describeInChromium("eight tabs", (browser) => {
  const newProfile = useProfiles(browser, server);

  it.each([
    { hub: "a SharedWorker", prepare: () => Promise.resolve() },
    { hub: "an elected tab, where there is no SharedWorker", prepare: withoutSharedWorker },
  ])("stops within a second with eight tabs open over HTTP/1.1, by $hub", async ({ prepare }) => {
    const profile = await newProfile();
    await prepare(profile.context);
    const first = await profile.newPage();
    server.upstream.reply(endless("Eight tabs read this", "never"));
    await ask(first, "Write on and on");
    const sessionId = await untilSession(first);
    const tabs = [first];
    while (tabs.length < TABS) tabs.push(await profile.newPage(`/#/c/${sessionId}`));
    await Promise.all(tabs.map((tab) => untilAnswer(tab, "Eight tabs read this")));
    const request = server.upstream.requests.at(-1)!;
    const last = tabs.at(-1)!;
    const startMs = performance.now();
    await last.getByRole("button", { name: "Stop the answer" }).click();
    const closedMs = (await request.closed) - startMs;
    expect(closedMs).toBeLessThan(STOP_MS);
    await Promise.all(tabs.map((tab) => untilIdle(tab)));
  });
});

function endless(text: string, gateName: string): Script {
  return [...textChunks(text), gate(gateName), ...finishChunks("stop")];
}
