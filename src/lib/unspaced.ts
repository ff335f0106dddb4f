/** A character of the scripts that write without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese), for expressions with `u`. */
export const UNSPACED =
  "[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Thai}\\p{Script=Lao}\\p{Script=Khmer}\\p{Script=Myanmar}ー]";
