/** A block of code: its language, buttons that wrap and copy it, the code in pieces so that a long one grows at its end only. */
import { memo, useEffect, useState, type ReactNode } from "react";
import { Icon } from "../../ui/icon.js";
import { highlight } from "./highlight.js";

/** Lines drawn as one piece. */
const LINES_PER_PIECE = 60;
/** How long the button says that it has copied. */
const COPIED_MS = 2_000;

/** Draws code. `language` is what stands behind the fence: its first word counts. */
export const CodeBlock = memo(function CodeBlock(props: {
  readonly code: string;
  readonly language: string;
}): ReactNode {
  const language = props.language.split(/\s/, 1)[0] ?? "";
  const [isWrapped, setWrapped] = useState(false);
  return (
    <div className={isWrapped ? "md-code is-wrapped" : "md-code"}>
      <div className="md-code-head">
        <span className="md-code-language">{language || "text"}</span>
        <button
          type="button"
          className="md-tool"
          aria-pressed={isWrapped}
          title="Wrap long lines"
          onClick={() => setWrapped(!isWrapped)}
        >
          <Icon name="wrap" />
          <span className="hidden-text">Wrap long lines</span>
        </button>
        <CopyButton text={props.code} />
      </div>
      <pre tabIndex={0} aria-label={language ? `Code, ${language}` : "Code"}>
        <code>
          <LongText text={props.code} language={language} />
        </code>
      </pre>
    </div>
  );
});

/** A long text in pieces: where it grows at its end, only its last piece is drawn again. */
export function LongText({
  text,
  language = "",
}: {
  readonly text: string;
  readonly language?: string;
}): ReactNode {
  return piecesOf(text).map((piece, i) => <Piece key={i} text={piece} language={language} />);
}

const Piece = memo(function Piece(props: { readonly text: string; readonly language: string }): ReactNode {
  const { text, language } = props;
  return (
    <span>
      {highlight(text, language).map(({ kind, text: part }, i) =>
        kind === undefined ? (
          part
        ) : (
          <span key={i} className={`code-${kind}`}>
            {part}
          </span>
        ),
      )}
    </span>
  );
});

/** The text in pieces of whole lines. */
function piecesOf(code: string): string[] {
  const pieces: string[] = [];
  let begin = 0;
  let lines = 0;
  for (let at = code.indexOf("\n"); at >= 0; at = code.indexOf("\n", at + 1)) {
    if (++lines % LINES_PER_PIECE !== 0) continue;
    pieces.push(code.slice(begin, at + 1));
    begin = at + 1;
  }
  pieces.push(code.slice(begin));
  return pieces;
}

/** Copies a text and says so. */
export function CopyButton({
  text,
  label = "Copy",
}: {
  readonly text: string;
  readonly label?: string;
}): ReactNode {
  const [outcome, setOutcome] = useState<"copied" | "failed">();
  useEffect(() => {
    if (!outcome) return undefined;
    const timer = setTimeout(() => setOutcome(undefined), COPIED_MS);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setOutcome("copied");
    } catch {
      setOutcome("failed"); // not allowed, or no secure context: the text can still be selected
    }
  };
  return (
    <button type="button" className="md-tool" aria-live="polite" onClick={() => void copy()}>
      <Icon name={outcome === "copied" ? "check" : "copy"} />
      <span>{outcome === "copied" ? "Copied" : outcome === "failed" ? "Copying is not allowed" : label}</span>
    </button>
  );
}
