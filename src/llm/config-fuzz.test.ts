/** Every mistake in a configuration says its file, line and key, and nothing that is secret: valid files, changed one thing at a time. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { isMap, isScalar, parseDocument } from "yaml";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import { loadLlmConfig } from "./load-config.js";

const FILE = "/etc/tw.yaml";
const SECRET = "sk-proj-Zx81kQw0Lm5vNb7Rt3Yp9Ha2";
const env = {
  TURNWIRE_CONFIG: FILE,
  ...{ LOCAL_KEY: SECRET, MAIN_KEY_1: `${SECRET}1`, MAIN_KEY_2: `${SECRET}2`, PIPE_TOKEN: `${SECRET}3` },
  GATEWAY_TOKEN: `${SECRET}4`,
};

/** The two examples of the documentation: they hold every key. */
const page = readFileSync(new URL("../../docs/models.md", import.meta.url), "utf8");
const EXAMPLES = [...page.matchAll(/```yaml\n([\s\S]*?)```/g)].slice(0, 2).map(([, text]) => text ?? "");

/** One of each kind that a reader could trip over; with more the suite only takes longer. */
const VALUES: readonly unknown[] = [null, -1, "", SECRET, [null], { a: 1 }];

function read(yaml: string): { readonly error: unknown } | undefined {
  try {
    loadLlmConfig(env, (path) =>
      path === FILE ? yaml : path.endsWith(".key") || path.endsWith(".token") ? `${SECRET}5\n` : gone(),
    );
    return undefined;
  } catch (error) {
    return { error };
  }
}

function gone(): never {
  throw new Error("ENOENT");
}

/** True if it was refused. */
function check(yaml: string, what: string, needsKey: boolean): boolean {
  const refused = read(yaml);
  if (!refused) return false;
  const { error } = refused;
  if (!(error instanceof TurnError)) throw new Error(`${what} crashes: ${String(error)}\n${yaml}`);
  const { code, message, details } = error;
  expect(code, what).toBe(ErrorCode.INVALID_ARGUMENT);
  expect(message, what).toMatch(/^\/etc\/tw\.yaml:\d+: \S/);
  expect(message, what).not.toContain(SECRET.slice(8));
  expect(JSON.stringify(details), what).not.toContain(SECRET.slice(8));
  expect(details["file"], what).toBe(FILE);
  const line = Number(details["line"]);
  expect(line, what).toBeGreaterThanOrEqual(1);
  expect(line, what).toBeLessThanOrEqual(yaml.split("\n").length);
  if (needsKey) expect(details["key"], `${what}: ${message}`).not.toBe("");
  return true;
}

type Path = readonly (string | number)[];

/** The places of all values below this one. */
function pathsOf(value: unknown, here: Path = []): Path[] {
  if (typeof value !== "object" || value === null) return [here];
  const members = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  const below = members.flatMap(([name, member]) => pathsOf(member, [...here, name]));
  return here.length === 0 ? below : [here, ...below];
}

test.each(EXAMPLES.map((text, at) => [at + 1, text] as const))("example %i - valid", (_, yaml) => {
  expect(read(yaml)).toBeUndefined();
});

test.each(EXAMPLES.map((text, at) => [at + 1, text] as const))(
  "example %i - each value as something else, missing, and under another key",
  (_, yaml) => {
    let refused = 0;
    const original = parseDocument(yaml);
    const paths = pathsOf(original.toJS());
    expect(paths.length).toBeGreaterThan(20);
    for (const path of paths) {
      const where = path.join(".");
      for (const value of VALUES) {
        const document = original.clone();
        document.setIn(path, document.createNode(value));
        if (check(String(document), `${where} = ${JSON.stringify(value)}`, true)) refused++;
      }
      const without = original.clone();
      without.deleteIn(path);
      check(String(without), `without ${where}`, true);
      const name = path.at(-1);
      if (typeof name !== "string") continue;
      const renamed = original.clone();
      const parent = path.length === 1 ? renamed.contents : renamed.getIn(path.slice(0, -1), true);
      if (!isMap(parent)) continue;
      const pair = parent.items.find(({ key }) => isScalar(key) && key.value === name)!;
      pair.key = renamed.createNode(`${name}x`);
      check(String(renamed), `${where} renamed`, path.length > 1);
    }
    expect(refused).toBeGreaterThan(paths.length * 2);
  },
  120_000,
);

test(
  "characters that are lost, doubled or put in - never a crash, always a line",
  { timeout: 120_000 },
  () => {
    let seed = 11;
    const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below;
    const put = [
      "{",
      "}",
      "[",
      "]",
      ":",
      ",",
      "-",
      "#",
      '"',
      "'",
      "&a ",
      "*a",
      "!t ",
      "|",
      "\n",
      "\t",
      "\u0000",
      "? ",
      "%",
    ];
    for (const example of EXAMPLES) {
      for (let run = 0; run < 120; run++) {
        const at = random(example.length);
        const how = random(3);
        const yaml =
          how === 0
            ? example.slice(0, at) + example.slice(at + 1 + random(4))
            : how === 1
              ? example.slice(0, at) + put[random(put.length)] + example.slice(at)
              : `${example.slice(0, at)} ${SECRET} ${example.slice(at)}`;
        check(yaml, `run ${run} at ${at}`, false);
      }
    }
  },
);

test.each([
  ["the key itself instead of a variable's name", `apiKeyEnv: ${SECRET}`],
  ["the key itself instead of a file's", `apiKeyFile: ${SECRET}`],
  ["the key itself as a header's variable", `headersEnv: { x-key: ${SECRET} }`],
  ["a key under a name that is not known", `apiKey: ${SECRET}`],
  ["a key as a name", `${SECRET}: x`],
])("%s - the error does not show it", (_, member) => {
  const yaml = `providers:\n  - name: a\n    api: openai-chat\n    baseUrl: http://a\n    ${member}\n`;
  expect(check(yaml, member, true)).toBe(true);
});
