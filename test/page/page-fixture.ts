/**
 * What the tests of the page stand on: the server as users run it, on a port that it keeps over restarts, a scripted model
 * provider, and helpers that act and wait as a person would. Nothing here waits for time: only for what is to be seen.
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import type { Browser, BrowserContext, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, vi } from "vitest";
import { watchPage, type PageWatch } from "../support/chromium.js";
import { MODEL, startWith } from "../support/e2e-fixture.js";
import { freePorts } from "../support/free-ports.js";
import { usePostgres } from "../support/postgres.js";
import { startScriptedUpstream, type ScriptedUpstream } from "../support/scripted-upstream.js";
import { makeDataDir, removeDataDir, type TurnwireProcess } from "../support/turnwire-process.js";

export { MODEL };
// Real servers and browsers on a busy machine: a test waits for what is to be seen, not for its time to be over.
vi.setConfig({ testTimeout: 120_000 });

export const OTHER_MODEL = "other-model";

export interface TestServer {
  /** http://127.0.0.1:port of page and API. */
  readonly origin: string;
  readonly upstream: ScriptedUpstream;
  readonly process: TurnwireProcess;
  readonly databaseUrl: string;
  /** Kills the server as a crash would. */
  kill9(): Promise<void>;
  /** Starts it again: same port, same data. */
  restart(): Promise<void>;
}

export interface TestServerOptions {
  /** What the provider lists. Default: MODEL and OTHER_MODEL. */
  readonly models?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** "host:port" that open_url may reach; known once the hooks run. */
  readonly allowHosts?: () => readonly string[];
}

/** Call it at the top of a file; the members are there once its hooks have run. */
export function useServer(options: TestServerOptions = {}): TestServer {
  const postgres = usePostgres();
  const dataDir = makeDataDir();
  let upstream: ScriptedUpstream;
  let running: TurnwireProcess;
  let env: Record<string, string>;
  const start = async (): Promise<void> => {
    running = await startWith(upstream, { dataDir, databaseUrl: postgres.url, env });
  };
  beforeAll(async () => {
    upstream = await startScriptedUpstream();
    upstream.setModels(options.models ?? [MODEL, OTHER_MODEL]);
    const [httpPort, grpcPort] = await freePorts(2);
    const config = path.join(dataDir, "config.yaml");
    const hosts = JSON.stringify(options.allowHosts?.() ?? []);
    writeFileSync(config, `tools:\n  openUrl:\n    allowHosts: ${hosts}\n`);
    env = {
      TURNWIRE_HTTP_PORT: String(httpPort),
      TURNWIRE_GRPC_PORT: String(grpcPort),
      TURNWIRE_CONFIG: config,
      ...options.env,
    };
    await start();
  });
  afterAll(async () => {
    await running?.stop();
    await upstream?.close();
    removeDataDir(dataDir);
  });
  return {
    get origin() {
      return running.httpUrl;
    },
    get upstream() {
      return upstream;
    },
    get process() {
      return running;
    },
    get databaseUrl() {
      return postgres.url;
    },
    kill9: () => running.kill9(),
    restart: start,
  };
}

/** One browser profile with its pages, and what must not happen in them. */
export interface Profile {
  readonly context: BrowserContext;
  /** A page of the profile, watched; of another origin than the server's when it is reached through a proxy. */
  newPage(address?: string, origin?: string): Promise<Page>;
  readonly watches: readonly PageWatch[];
}

/** Makes profiles; they are closed after each test. */
export function useProfiles(browser: () => Browser, server: TestServer) {
  const open: BrowserContext[] = [];
  afterEach(async () => {
    await Promise.all(open.splice(0).map((context) => context.close()));
  });
  return async (options: BrowserContextOptions = {}): Promise<Profile> => {
    const context = await browser().newContext({ viewport: { width: 1280, height: 800 }, ...options });
    context.setDefaultTimeout(40_000);
    open.push(context);
    const watches: PageWatch[] = [];
    return {
      context,
      watches,
      async newPage(address = "/", origin = server.origin) {
        const page = await context.newPage();
        watches.push(watchPage(page, origin));
        await page.goto(origin + address);
        await page.locator("#composer-text, .page-scroll, .sign-in-box").first().waitFor();
        return page;
      },
    };
  };
}

/** Writes a message and sends it. */
export async function ask(page: Page, text: string): Promise<void> {
  await page.locator("#composer-text").fill(text);
  await page.locator("#composer-text").press("Enter");
}

/** Waits until the last answer holds a text. */
export async function untilAnswer(page: Page, text: string): Promise<void> {
  await page.locator(".exchange").last().locator(".answer").getByText(text).first().waitFor();
}

/** Waits until nothing is being written. */
export async function untilIdle(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Answer again" }).last().waitFor();
  await page.getByRole("button", { name: "Stop the answer" }).waitFor({ state: "detached" });
}

/** Waits until the page has its stream: what happens from then on reaches it. */
export async function untilSession(page: Page): Promise<string> {
  await page.waitForURL(/#\/c\//);
  return decodeURIComponent(new URL(page.url()).hash.replace("#/c/", ""));
}

/** Opens whatever can be opened in the answers, so that all of it is drawn. */
export async function openEverything(page: Page): Promise<void> {
  const closed = page.locator('.answer [aria-expanded="false"]');
  // what is inside may open too: a few levels at most
  for (let level = 0; level < 5 && (await closed.count()) > 0; level += 1)
    await closed.evaluateAll((toggles) => toggles.forEach((toggle) => (toggle as HTMLElement).click()));
}

/** Pages of the context find no SharedWorker, as on some phones. */
export async function withoutSharedWorker(context: BrowserContext): Promise<void> {
  await context.addInitScript(() => Reflect.deleteProperty(window, "SharedWorker"));
}
