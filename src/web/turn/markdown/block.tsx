/** Block-level Markdown as React elements. A block is drawn again only when its text changed. */
import { memo, type ReactNode } from "react";
import type { MarkedToken, Token, Tokens } from "marked";
import { CodeBlock } from "./code-block.js";
import { renderInline } from "./inline.js";

/** The page's own headings are above those of a text. */
const TOP_HEADING = 3;

/** Draws one block; what is inside it is memoised by its raw text too, so that a long list grows at its end only. */
export const Block = memo(
  function Block({ token }: { readonly token: Token }): ReactNode {
    return renderBlock(token);
  },
  (before, after) => before.token === after.token || isSame(before.token, after.token),
);

/** Whether two tokens look the same. Links may resolve otherwise under the same text, so brackets are looked at again. */
function isSame(a: Token, b: Token): boolean {
  return a.type === b.type && a.raw === b.raw && !b.raw.includes("[");
}

function renderBlock(anyToken: Token): ReactNode {
  const token = anyToken as MarkedToken;
  switch (token.type) {
    case "paragraph":
      return <p>{renderInline(token.tokens)}</p>;
    case "heading":
      return <Heading depth={token.depth}>{renderInline(token.tokens)}</Heading>;
    case "code":
      return <CodeBlock code={token.text} language={token.lang ?? ""} />;
    case "blockquote":
      return <blockquote>{renderBlocks(token.tokens)}</blockquote>;
    case "list":
      return <List list={token} />;
    case "table":
      return <Table table={token} />;
    case "hr":
      return <hr />;
    case "html":
      return <p className="md-html">{token.raw.trimEnd()}</p>;
    case "space":
    case "def":
      return null;
    default:
      return renderInline([anyToken]);
  }
}

function renderBlocks(tokens: readonly Token[]): ReactNode {
  return tokens.map((token, i) => <Block key={i} token={token} />);
}

function Heading({ depth, children }: { readonly depth: number; readonly children: ReactNode }): ReactNode {
  const level = Math.min(TOP_HEADING + depth - 1, 6);
  const Tag = `h${level}` as "h3" | "h4" | "h5" | "h6";
  return <Tag className={`md-h${Math.min(depth, 4)}`}>{children}</Tag>;
}

function List({ list }: { readonly list: Tokens.List }): ReactNode {
  const items = list.items.map((item, i) => <ListItem key={i} item={item} />);
  return list.ordered ? <ol start={list.start === "" ? 1 : list.start}>{items}</ol> : <ul>{items}</ul>;
}

const ListItem = memo(
  function ListItem({ item }: { readonly item: Tokens.ListItem }): ReactNode {
    // In a tight list the text stands bare, in a loose one in paragraphs: marked tells by the token types.
    return <li className={item.task ? "md-task" : undefined}>{renderBlocks(item.tokens)}</li>;
  },
  (before, after) => before.item.loose === after.item.loose && isSame(before.item, after.item),
);

function Table({ table }: { readonly table: Tokens.Table }): ReactNode {
  return (
    <div className="md-table" tabIndex={0} role="group" aria-label="Table">
      <table>
        <thead>
          <tr>
            {table.header.map((cell, i) => (
              <th key={i} scope="col" style={{ textAlign: cell.align ?? undefined }}>
                {renderInline(cell.tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, i) => (
            <Row key={i} row={row} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

const Row = memo(
  function Row({ row }: { readonly row: Tokens.TableCell[] }): ReactNode {
    return (
      <tr>
        {row.map((cell, i) => (
          <td key={i} style={{ textAlign: cell.align ?? undefined }}>
            {renderInline(cell.tokens)}
          </td>
        ))}
      </tr>
    );
  },
  (before, after) =>
    before.row.length === after.row.length &&
    before.row.every(({ text }, i) => text === after.row[i]!.text && !text.includes("[")),
);
