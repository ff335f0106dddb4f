/** Counts tokens as OpenAI's newer models do. The tables are large: they are loaded by the first count. */
import type { CompletionInput } from "../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { forEachText } from "./usage.js";

/** Characters counted at a time, others run in between. A long text without blanks takes the square of its length. */
const SLICE_CHARS = 2 * 1024;
const SLICES_AT_ONCE = 8;
/** Characters counted exactly; what is beyond is taken to be like it. */
const MAX_COUNTED_CHARS = 2 * 1024 * 1024;
const TOKENS_PER_MESSAGE = 4;
const TOKENS_PER_MEDIA = 1_000;

type Count = (text: string) => number;
let tokenizer: Promise<Count> | undefined;

async function load(): Promise<Count> {
  const { countTokens } = await import("gpt-tokenizer/encoding/o200k_base");
  return (text) => countTokens(text, { disallowedSpecial: new Set() });
}

/** The tokens of everything that a model is given. Throws the signal's reason when it aborts. */
export async function countWithTokenizer(input: CompletionInput, signal: AbortSignal): Promise<number> {
  const texts: string[] = [];
  const media = forEachText(input, (text) => void texts.push(text));
  const text = await countTexts(texts, signal);
  return text + input.messages.length * TOKENS_PER_MESSAGE + media * TOKENS_PER_MEDIA;
}

async function countTexts(texts: readonly string[], signal: AbortSignal): Promise<number> {
  tokenizer ??= load();
  const count = await tokenizer;
  let tokens = 0;
  let counted = 0;
  let slices = 0;
  let all = 0;
  for (const text of texts) {
    all += text.length;
    for (let at = 0; at < text.length && counted < MAX_COUNTED_CHARS;) {
      const end = sliceEnd(text, at);
      tokens += count(text.slice(at, end));
      counted += end - at;
      at = end;
      if (++slices % SLICES_AT_ONCE === 0) await new Promise(setImmediate);
      signal.throwIfAborted();
    }
  }
  return counted === all ? tokens : Math.ceil((tokens * all) / counted);
}

/** Slices end before a blank: tokens begin with theirs. */
function sliceEnd(text: string, start: number): number {
  const end = start + SLICE_CHARS;
  if (end >= text.length) return text.length;
  const blank = text.lastIndexOf(" ", end);
  return blank > start ? blank : end;
}
