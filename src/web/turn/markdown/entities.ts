/** Character references in Markdown text: `&amp;`, `&#39;`, `&#x2014;` and the names that models write. */

const NAMED: ReadonlyMap<string, string> = new Map([
  ["amp", "&"],
  ["lt", "<"],
  ["gt", ">"],
  ["quot", '"'],
  ["apos", "'"],
  ["nbsp", "\u00a0"],
  ["ndash", "–"],
  ["mdash", "—"],
  ["hellip", "…"],
  ["copy", "©"],
  ["reg", "®"],
  ["trade", "™"],
  ["deg", "°"],
  ["plusmn", "±"],
  ["times", "×"],
  ["divide", "÷"],
  ["middot", "·"],
  ["bull", "•"],
  ["rarr", "→"],
  ["larr", "←"],
  ["le", "≤"],
  ["ge", "≥"],
  ["ne", "≠"],
  ["euro", "€"],
  ["pound", "£"],
  ["sect", "§"],
  ["laquo", "«"],
  ["raquo", "»"],
  ["ldquo", "“"],
  ["rdquo", "”"],
  ["lsquo", "‘"],
  ["rsquo", "’"],
]);

/** The text with its references replaced; unknown ones stay as they are. */
export function decodeEntities(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(
    /&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|([a-zA-Z]{2,8}));/g,
    (whole, decimal, hex, name) => {
      if (name !== undefined) return NAMED.get(name as string) ?? whole;
      const code = decimal !== undefined ? Number(decimal) : Number.parseInt(hex as string, 16);
      const isCharacter = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
      return isCharacter ? String.fromCodePoint(code) : "\ufffd";
    },
  );
}
