import { expect, test } from "vitest";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import {
  LOCAL_PRINCIPAL,
  PEER_PRINCIPAL,
  createAuthenticator,
  createPeerAuthenticator,
  isLoopbackHost,
} from "./auth.js";

const bearer = (value?: string) => ({
  get: (name: string) => (name === "authorization" ? value : undefined),
});

test.each([
  ["s3cret=acme/ada", "Bearer s3cret", { tenantId: "acme", userId: "ada", admin: false }],
  ["s3cret=acme/ada/admin", "bearer s3cret", { tenantId: "acme", userId: "ada", admin: true }],
  ["a=b=c=acme/ada", "Bearer a=b=c", { tenantId: "acme", userId: "ada", admin: false }],
  [
    "s3+cret=acme/ada+staff+beta",
    "Bearer s3+cret",
    { tenantId: "acme", userId: "ada", admin: false, groups: ["staff", "beta"] },
  ],
  ["s=acme/ada/admin+staff", "Bearer s", { tenantId: "acme", userId: "ada", admin: true, groups: ["staff"] }],
  [" one=t/u , two=t/v ,", "Bearer two", { tenantId: "t", userId: "v", admin: false }],
  ["pa/th=t/u@example.org", "Bearer pa/th", { tenantId: "t", userId: "u@example.org", admin: false }],
])("auth - %s lets %s in", async (tokens, header, principal) => {
  expect(await createAuthenticator({ tokens, loopback: false })(bearer(header))).toEqual(principal);
});

test.each([
  undefined,
  "",
  "Bearer",
  "Bearer ",
  "Bearer wrong",
  "Basic s3cret",
  "s3cret",
  "Bearer s3cret extra",
  "Bearer S3CRET",
])("auth - %s is UNAUTHENTICATED", (header) => {
  const authenticate = createAuthenticator({ tokens: "s3cret=acme/ada", loopback: true });
  expect(() => authenticate(bearer(header))).toThrow(
    expect.objectContaining({ code: ErrorCode.UNAUTHENTICATED }) as Error,
  );
});

test.each([
  "topsecret",
  "topsecret=",
  "topsecret=acme",
  "topsecret=acme/",
  "topsecret=/ada",
  "topsecret=acme/ada/root",
  "topsecret=acme/ada/admin/x",
  "topsecret=acme/ada+",
  "topsecret=acme/ada+staff+",
  "topsecret=acme/ada+tenant:acme",
  "topsecret=acme/ada+staff/admin",
  "topsecret=acme+staff/ada",
  "=acme/ada",
  "top secret=acme/ada",
  "ok=a/b,topsecret=acme",
  "topsecret=a/b,topsecret=c/d",
])("auth - the configuration %j is refused without showing it", (tokens) => {
  let message = "";
  try {
    createAuthenticator({ tokens, loopback: true });
  } catch (error) {
    message = (error as Error).message;
  }
  expect(message).toMatch(/^TURNWIRE_TOKENS, entry \d: /);
  expect(message).not.toMatch(/topsecret|top secret|acme\/ada\/root/);
});

test("auth - without tokens loopback is the local admin, and everything else refuses to start", async () => {
  expect(await createAuthenticator({ loopback: true })(bearer())).toEqual(LOCAL_PRINCIPAL);
  expect(await createAuthenticator({ tokens: " ", loopback: true })(bearer())).toEqual(LOCAL_PRINCIPAL);
  expect(() => createAuthenticator({ loopback: false })).toThrow(/TURNWIRE_TOKENS/);
});

test("auth - peers share one token, and need it off loopback", async () => {
  expect(await createPeerAuthenticator({ loopback: true })(bearer())).toEqual(PEER_PRINCIPAL);
  expect(() => createPeerAuthenticator({ loopback: false })).toThrow(/TURNWIRE_PEER_TOKEN/);
  const authenticate = createPeerAuthenticator({ token: "p", loopback: false });
  expect(await authenticate(bearer("Bearer p"))).toEqual(PEER_PRINCIPAL);
  expect(() => authenticate(bearer())).toThrow(
    expect.objectContaining({ code: ErrorCode.UNAUTHENTICATED }) as Error,
  );
});

test.each([
  ["127.0.0.1", true],
  ["127.8.8.8", true],
  ["localhost", true],
  ["::1", true],
  ["[::1]", true],
  ["0.0.0.0", false],
  ["::", false],
  ["10.0.0.1", false],
  ["127.0.0.1.example", false],
])("auth - the host %s is loopback: %s", (host, loopback) => {
  expect(isLoopbackHost(host)).toBe(loopback);
});
