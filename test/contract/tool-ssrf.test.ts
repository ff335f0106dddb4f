/** The egress module against addresses that must not be reached: nothing ever connects to the canary. */
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { createSafeFetch, type Resolver } from "../../src/egress/safe-fetch.js";
import { FetchFailure } from "../../src/egress/fetch-failure.js";
import { isGlobalAddress } from "../../src/egress/address.js";
import { type Canary, startCanary, startWebPages, type WebPages } from "../support/web-pages.js";
import { makeTestCertificate } from "../support/test-certificate.js";

let canary: Canary;
let web: WebPages;
const LIMITS = () => ({ maxBytes: 1024, beyond: "cut" as const });
const never = new AbortController().signal;

beforeAll(async () => {
  canary = await startCanary();
  web = await startWebPages(`http://127.0.0.1:${canary.port}/`);
});
afterAll(async () => {
  await web.close();
  await canary.close();
});

/** Hosts in every disguise; the canary's port is allowed, so only the address check stands between. */
const HOSTS = [
  "127.0.0.1",
  "127.1",
  "127.0.1",
  "127.000.000.001",
  "127.255.255.254",
  "2130706433",
  "017700000001",
  "0x7f000001",
  "0x7f.1",
  "0x7f.0x0.0x0.0x1",
  "0177.0.0.1",
  "0",
  "0.0.0.0",
  "0x0",
  "\uff11\uff12\uff17.\uff10.\uff10.\uff11",
  "\u2460\u2461\u2466.0.0.1",
  "127\u30020\u30020\u30021",
  "127.0.0.1.",
  "%31%32%37.0.0.1",
  "[::1]",
  "[::]",
  "[0:0:0:0:0:0:0:1]",
  "[::ffff:127.0.0.1]",
  "[::ffff:7f00:1]",
  "[0:0:0:0:0:ffff:7f00:1]",
  "[::ffff:0:7f00:1]",
  "[::ffff:a9fe:a9fe]",
  "[::127.0.0.1]",
  "[64:ff9b::7f00:1]",
  "[64:ff9b::169.254.169.254]",
  "[64:ff9b:1::7f00:1]",
  "[2002:7f00:1::]",
  "[2002:a9fe:a9fe::1]",
  "[2001:0:7f00:1::]",
  "[2001:db8::1]",
  "[3fff::1]",
  "[100::1]",
  "[fe80::1]",
  "[fec0::1]",
  "[fd00:ec2::254]",
  "[fc00::1]",
  "[ff02::1]",
  "[5f00::1]",
  "169.254.169.254",
  "0xa9fea9fe",
  "2852039166",
  "169.254.170.2",
  "168.63.129.16",
  "100.100.100.200",
  "100.64.0.1",
  "192.0.0.192",
  "192.0.2.1",
  "192.88.99.1",
  "198.18.0.1",
  "198.51.100.1",
  "203.0.113.1",
  "10.0.0.1",
  "172.16.0.1",
  "172.31.255.255",
  "192.168.0.1",
  "224.0.0.1",
  "239.255.255.250",
  "240.0.0.1",
  "255.255.255.255",
  "localhost",
  "localhost.",
  "LOCALHOST",
  "\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3",
  "a.localhost",
  "metadata.google.internal",
  "printer.local",
  "db.internal.",
];

test.each(HOSTS)("ssrf - http://%s is refused without a connection", async (host) => {
  const resolve: Resolver = async () => ["127.0.0.1"]; // whatever counts as a name leads home
  const fetch = createSafeFetch({ ports: [80, 443, canary.port], resolve });
  const failure = await fetch(`http://${host}:${canary.port}/`, LIMITS, never).catch(
    (error: unknown) => error,
  );
  expect(failure).toBeInstanceOf(FetchFailure);
  expect((failure as FetchFailure).kind).toMatch(/^(refused|invalid_url)$/);
  expect((failure as FetchFailure).message).not.toMatch(/\d+\.\d+\.\d+/);
  expect(canary.connections()).toBe(0);
});

const RESOLVED: readonly (readonly string[])[] = [
  ["127.0.0.1"],
  ["93.184.215.14", "127.0.0.1"],
  ["::1"],
  ["::ffff:127.0.0.1"],
  ["fe80::1%lo"],
  ["2606:2800:21f:cb07:6820:80da:af6b:8b2c", "fd00::1"],
  ["169.254.169.254"],
  [],
  ["not an address"],
];

test.each(RESOLVED)("ssrf - a name that resolves to %s, %s is refused", async (...addresses) => {
  const fetch = createSafeFetch({ ports: [canary.port], resolve: async () => addresses });
  await expect(fetch(`http://example.com:${canary.port}/`, LIMITS, never)).rejects.toMatchObject({
    kind: "refused",
  });
  expect(canary.connections()).toBe(0);
});

test("ssrf - a resolver that does not know the name and one that knows an inner one look the same", async () => {
  const messages = await Promise.all(
    [async () => Promise.reject(new Error("ENOTFOUND db.corp 10.0.0.2")), async () => ["10.0.0.1"]].map(
      async (resolve) => {
        const fetch = createSafeFetch({ resolve });
        return fetch("http://wiki.example.com/", LIMITS, never).catch(
          (error: unknown) => (error as Error).message,
        );
      },
    ),
  );
  expect(messages[0]).toBe(messages[1]);
});

test("ssrf - a name is resolved once, and the connection goes to that answer, whatever comes later", async () => {
  const port = Number(web.host.split(":")[1]);
  const elsewhere = await startCanary("127.0.0.2", port);
  let asked = 0;
  const flipping: Resolver = async () => (asked++ === 0 ? ["127.0.0.1"] : ["127.0.0.2"]);
  const fetch = createSafeFetch({ allowHosts: [`flip.example.com:${port}`], resolve: flipping });
  const page = await fetch(`http://flip.example.com:${port}/markdown`, LIMITS, never);
  expect(page.body.toString()).toContain("# Title");
  expect(asked).toBe(1);
  expect(elsewhere.connections()).toBe(0);
  await elsewhere.close();
});

test("ssrf - each hop is resolved and checked anew", async () => {
  const hop = await startWebPages(`http://second.example.com:${canary.port}/`);
  const asked: string[] = [];
  const resolve: Resolver = async (name) => (asked.push(name), ["127.0.0.1"]);
  const fetch = createSafeFetch({ allowHosts: [hop.host], ports: [canary.port], resolve });
  await expect(fetch(hop.url("/to-canary/302"), LIMITS, never)).rejects.toMatchObject({ kind: "refused" });
  expect(asked).toEqual(["second.example.com"]);
  expect(canary.connections()).toBe(0);
  await hop.close();
});

test("ssrf - a name on the allow-list is pinned to its answer, with its Host header kept", async () => {
  const port = web.host.split(":")[1]!;
  const fetch = createSafeFetch({
    allowHosts: [`pages.example.com:${port}`],
    resolve: async () => ["127.0.0.1"],
  });
  const page = await fetch(`http://pages.example.com:${port}/markdown`, LIMITS, never);
  expect(page.body.toString()).toContain("# Title");
  expect(web.requests.at(-1)?.headers.host).toBe(`pages.example.com:${port}`);
});

test.each([301, 302, 303, 307, 308])("ssrf - a redirect %i to loopback is refused", async (status) => {
  const fetch = createSafeFetch({ allowHosts: [web.host], ports: [80, 443, canary.port] });
  await expect(fetch(web.url(`/to-canary/${status}`), LIMITS, never)).rejects.toMatchObject({
    kind: "refused",
  });
  expect(canary.connections()).toBe(0);
});

test("ssrf - refresh headers and tags are not followed", async () => {
  const fetch = createSafeFetch({ allowHosts: [web.host], ports: [80, 443, canary.port] });
  expect((await fetch(web.url("/refresh"), LIMITS, never)).url.pathname).toBe("/refresh");
  expect(canary.connections()).toBe(0);
});

test.each([
  "ftp://example.com/",
  "file:///etc/passwd",
  "gopher://127.0.0.1:6379/_INFO",
  "data:text/html,hello",
  "javascript:alert(1)",
  "http://user@example.com/",
  "http://user:password@example.com/",
  "http://example.com@127.0.0.1/",
  "http://example.com:22/",
  "https://example.com:6379/",
  "http://exa mple.com/",
  "http://[fe80::1%25lo]/",
  "http://999.999.999.999/",
  "//example.com",
  "example.com",
  "",
  `http://example.com/${"a".repeat(5_000)}`,
])("ssrf - %s is refused before anything is resolved", async (url) => {
  let asked = 0;
  const fetch = createSafeFetch({ resolve: async () => (asked++, ["127.0.0.1"]) });
  await expect(fetch(url, LIMITS, never)).rejects.toBeInstanceOf(FetchFailure);
  expect(asked).toBe(0);
});

test("ssrf - proxies of the environment are not used", async () => {
  const before = { ...process.env };
  for (const name of ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"]) {
    process.env[name] = `http://127.0.0.1:${canary.port}`;
  }
  try {
    const fetch = createSafeFetch({ allowHosts: [web.host] });
    expect((await fetch(web.url("/markdown"), LIMITS, never)).body.length).toBeGreaterThan(0);
    expect(canary.connections()).toBe(0);
  } finally {
    process.env = before;
  }
});

test.each([
  "8.8.8.8",
  "93.184.215.14",
  "1.1.1.1",
  "172.32.0.1",
  "100.128.0.1",
  "2606:4700:4700::1111",
  "2a00:1450:4001::1",
])("ssrf - %s is a public address", (address) => expect(isGlobalAddress(address)).toBe(true));

/** A page over TLS at localhost that redirects /down to plain http; tells which name each connection asked for. */
async function startTlsPage() {
  const { cert, key } = makeTestCertificate();
  const names: unknown[] = [];
  const server = createServer({ cert, key }, (request, response) => {
    names.push((request.socket as TLSSocket & { servername?: unknown }).servername);
    if (request.url === "/down") response.writeHead(302, { location: web.url("/markdown") }).end();
    else response.writeHead(200, { "content-type": "text/plain" }).end("over tls");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return { port: (server.address() as AddressInfo).port, ca: [cert.toString()], names };
}

const home: Resolver = async () => ["127.0.0.1"];

test("tls - the name of the URL is what the certificate is asked and checked for", async () => {
  const { port, ca, names } = await startTlsPage();
  const allowHosts = [`localhost:${port}`, `other.example.com:${port}`];
  const fetch = createSafeFetch({ allowHosts, resolve: home, ca });
  expect((await fetch(`https://localhost:${port}/`, LIMITS, never)).body.toString()).toBe("over tls");
  expect(names).toEqual(["localhost"]);
  const untrusting = createSafeFetch({ allowHosts, resolve: home });
  for (const attempt of [
    fetch(`https://other.example.com:${port}/`, LIMITS, never),
    untrusting(`https://localhost:${port}/`, LIMITS, never),
  ]) {
    await expect(attempt).rejects.toMatchObject({
      kind: "unreachable",
      message: "the server's certificate is not valid for it",
    });
  }
  expect(names).toHaveLength(1);
});

test("tls - a redirect from https to plain http is refused", async () => {
  const { port, ca } = await startTlsPage();
  const before = web.requests.length;
  const fetch = createSafeFetch({ allowHosts: [`localhost:${port}`, web.host], resolve: home, ca });
  await expect(fetch(`https://localhost:${port}/down`, LIMITS, never)).rejects.toMatchObject({
    kind: "refused",
    message: "it redirects from https to plain http",
  });
  expect(web.requests.length).toBe(before);
});
