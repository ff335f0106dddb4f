/** The test data folder: recorded provider bodies and case tables, kept outside the repository. */
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { join, resolve } from "node:path";

/** Its path (`TURNWIRE_TESTDATA`, else `../shared` beside the repository); undefined when there is none. */
export function testDataDir(): string | undefined {
  const repository = fileURLToPath(new URL("../..", import.meta.url));
  const dir = process.env["TURNWIRE_TESTDATA"] ?? resolve(repository, "../shared");
  return existsSync(join(dir, "corpus", "index.json")) ? dir : undefined;
}

/** One recorded body with what a decoder should make of it. */
export interface CorpusCase {
  readonly name: string;
  /** The wire dialect, as the test data call it. */
  readonly api: string;
  readonly stream: boolean;
  readonly body: Uint8Array;
  readonly contentType: string;
  readonly want: CorpusExpectation;
}

export interface CorpusExpectation {
  readonly text: string;
  readonly reasoning: string;
  /** undefined = unknown. */
  readonly order?: readonly string[];
  readonly tool_calls: readonly {
    readonly id: string | null;
    readonly name: string;
    readonly arguments_json: string;
  }[];
  /** Run by the provider. */
  readonly server_tool_calls?: readonly unknown[];
  /** An object, or just the address. */
  readonly sources?: readonly (string | { readonly url?: string })[];
  readonly finish_reason: string | null;
  readonly finish_reason_raw?: string | null;
  readonly usage?: Readonly<Record<string, number | null>>;
  readonly error: unknown;
  readonly generated_ids?: boolean;
}

interface IndexEntry {
  readonly case: string;
  readonly api: string;
  readonly stream: boolean;
}

/** The cases that have an expectation, corrections laid over it. */
export function corpusCases(dir: string): CorpusCase[] {
  const index = readJson(join(dir, "corpus", "index.json")) as readonly IndexEntry[];
  return index
    .map((entry) => {
      const path = join(dir, "corpus", entry.case);
      const base = path.replace(/\.[a-z]+$/, "");
      const expected = readJson(`${base}.expected.json`) as CorpusExpectation & {
        readonly right?: Partial<CorpusExpectation>;
      };
      const meta = readJson(`${base}.meta.json`) as { readonly content_type: string };
      return {
        name: entry.case,
        api: entry.api,
        stream: entry.stream,
        body: readFileSync(path),
        contentType: meta.content_type,
        want: correct(expected, expected.right),
      };
    })
    .filter(({ want }) => want.text !== undefined);
}

/** A correction that adds reasoning says nothing of the order, and the order of what the peer saw is wrong then. */
function correct(
  expected: CorpusExpectation,
  right: Partial<CorpusExpectation> | undefined,
): CorpusExpectation {
  if (!right) return expected;
  const orderKnown = right.reasoning === undefined || right.reasoning === expected.reasoning;
  return { ...expected, ...(orderKnown ? {} : { order: undefined }), ...right };
}

/** The rows of a case table (`stream_bugs`, `citations`, ...). */
export function readCases(dir: string, table: string): unknown {
  return readJson(join(dir, "cases", `${table}.json`));
}

function readJson(path: string): unknown {
  return JSON.parse(readFileSync(path, "utf8"));
}
