/** The file of TURNWIRE_CONFIG as YAML: what every service asks of it, at its start and whenever it is read again. Pure. */
import { isMap, isScalar, LineCounter, parseDocument, visit, type Document, type Node } from "yaml";

const PARTS: readonly string[] = ["providers", "models", "routes", "tags", "prices", "tools", "limits"];

export interface ConfigDocument {
  readonly document: Document;
  readonly lines: LineCounter;
}

/**
 * Parses the file. Throws what `fail` makes of the first fault: no YAML, a tag or an alias that means nothing, an alias
 * inside of what it stands for, a part that nobody reads. An empty file has no faults.
 */
export function parseConfigDocument(
  text: string,
  fail: (line: number, what: string) => Error,
): ConfigDocument {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const failAt = (offset: number, what: string): Error => fail(lines.linePos(offset).line, what);
  const broken = document.errors[0] ?? document.warnings[0];
  if (broken) throw failAt(broken.pos[0], broken.message.split("\n", 1)[0]!);
  checkAliases(document, failAt);
  const { contents } = document;
  if (contents === null) return { document, lines };
  if (!isMap(contents)) throw fail(1, `must be a mapping of ${PARTS.join(", ")}`);
  for (const { key } of contents.items) {
    const name = isScalar(key) ? String(key.value) : "";
    if (PARTS.includes(name)) continue;
    throw failAt(
      (isScalar(key) && key.range?.[0]) || 0,
      `${name} is not known here (known: ${PARTS.join(", ")})`,
    );
  }
  return { document, lines };
}

function checkAliases(document: Document, failAt: (offset: number, what: string) => Error): void {
  const anchors = new Map<string, Node>();
  visit(document, {
    Value(_, node) {
      if (node.anchor !== undefined) anchors.set(node.anchor, node);
    },
    Alias(_, { source, range }, ancestors) {
      const target = anchors.get(source);
      const offset = range?.[0] ?? 0;
      if (!target) throw failAt(offset, `the alias *${source} has no anchor before it`);
      if (ancestors.includes(target))
        throw failAt(offset, `the alias *${source} stands inside of its anchor`);
    },
  });
}
