/** Which language a text is in, as the text search configuration of Postgres that knows its word forms. */
import { francAll } from "franc-min";

/** Of Postgres 13 and newer, by ISO 639-3; what is not here is indexed as it stands. */
const CONFIGURATIONS: Readonly<Record<string, string>> = {
  arb: "arabic",
  deu: "german",
  ell: "greek",
  eng: "english",
  fra: "french",
  hun: "hungarian",
  ind: "indonesian",
  ita: "italian",
  nep: "nepali",
  nld: "dutch",
  por: "portuguese",
  ron: "romanian",
  rus: "russian",
  spa: "spanish",
  swe: "swedish",
  tam: "tamil",
  tur: "turkish",
};

/** The configuration that changes nothing about a word but its case. */
export const UNKNOWN_LANGUAGE = "simple";

/** All that `detectLanguage` may answer. */
export const LANGUAGES: readonly string[] = [UNKNOWN_LANGUAGE, ...Object.values(CONFIGURATIONS)];

const SAMPLE_CHARS = 4_000;
/** A shorter sample is guesswork. */
const MIN_SAMPLE_CHARS = 60;

/** Looks at the beginning of a text: prose only, without code, addresses and markup. */
export function detectLanguage(text: string): string {
  const sample = text
    .slice(0, SAMPLE_CHARS * 2)
    .replace(/^(```|~~~)[\s\S]*?^(```|~~~)/gm, " ")
    .replace(/\S*[/@_=<>{}]\S*|`[^`\n]*`|[#*|[\]\d]+/g, " ")
    .slice(0, SAMPLE_CHARS);
  const [best] = francAll(sample, { minLength: MIN_SAMPLE_CHARS });
  return (best && CONFIGURATIONS[best[0]]) ?? UNKNOWN_LANGUAGE;
}
