/** Two users, one after the other, in one browser: nothing of the first is sent or shown as the second's. */
import { expect, it } from "vitest";
import type { Page } from "playwright-core";
import { describeInChromium } from "../support/chromium.js";
import { answerScript } from "../support/scripted-upstream.js";
import { ask, untilAnswer, useProfiles, useServer } from "./page-fixture.js";

const server = useServer({ env: { TURNWIRE_TOKENS: "ann-token=acme/ann,bob-token=acme/bob" } });

describeInChromium("the accounts of one browser", (browser) => {
  const newProfile = useProfiles(browser, server);

  it("keeps what Ann has not sent yet, in every tab, from Bob who signs in after her", async () => {
    server.upstream.replyWith(() => answerScript("Here you are."));
    const profile = await newProfile();
    const page = await profile.newPage();
    await signIn(page, "ann-token");
    const other = await profile.newPage();
    await other.locator("#composer-text").fill("Ann's draft");

    await profile.context.route("**/StartTurn", (route) => route.abort());
    await ask(page, "Ann's secret plan");
    await page.locator(".is-pending", { hasText: "Ann's secret plan" }).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    for (const tab of [page, other])
      await tab.getByRole("heading", { name: "Sign in to Turnwire" }).waitFor();
    await profile.context.unroute("**/StartTurn");

    await signIn(page, "bob-token");
    await ask(page, "Bob's question");
    await untilAnswer(page, "Here you are.");
    await other.getByRole("link", { name: "Bob's question" }).waitFor();
    expect(await other.locator("#composer-text").inputValue()).toBe("");
    for (const tab of [page, other]) expect(await tab.locator("body").innerText()).not.toContain("Ann's");
    expect(asked()).not.toContain("Ann's secret plan");

    await page.getByRole("button", { name: "Sign out" }).click();
    await signIn(page, "ann-token");
    await page.getByRole("link", { name: "Ann's secret plan" }).waitFor();
    expect(await page.locator("body").innerText()).not.toContain("Bob's question");
    expect(asked()).toContain("Ann's secret plan");
  }, 60_000);
});

async function signIn(page: Page, token: string): Promise<void> {
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await page.locator("#composer-text").waitFor();
}

/** Everything that the model was told. */
function asked(): string {
  return JSON.stringify(server.upstream.requests.map(({ json }) => json));
}
