import { expect, test } from "vitest";
import { otherForms, variantsOf } from "./word-forms.js";

test.each([
  ["plain words, as they stand.", ""],
  ["fetchUserName", "fetch User Name"],
  ["HTTPServer2Go", "HTTP Server2 Go"],
  ["retry_with_backoff", "retry with backoff retrywithbackoff"],
  ["os.path.join", "os path join"],
  ["jane.doe@example.org", "jane doe example org"],
  ["on 2024-05-17", "2024 05 17 20240517"],
  ["an e-mail", "e mail email"],
  ["Zürich, Straße, Ærø", "Zurich Strasse aero"],
  ["ＡＢＣ", "ABC"],
  ["हिन्दी العربية", ""],
])("other forms - %s", (text, forms) => {
  expect(otherForms(text)).toBe(forms);
});

test("other forms - bounded, and linear in what makes careless patterns slow", () => {
  expect(otherForms(Array.from({ length: 10_000 }, (_, n) => `a${n}-b${n}`).join(" ")).length).toBeLessThan(
    4_100,
  );
  for (const part of ["a", "A", "1", "a-", "aB", "é", "-", "a_b-"])
    expect(otherForms(part.repeat(20_000)).length).toBeLessThan(4_100);
});

test("variants of a query - each once, the query itself first", () => {
  expect(variantsOf("plain words")).toEqual(["plain words"]);
  expect(variantsOf("e-mail in Zürich")).toEqual([
    "e-mail in Zürich",
    "e-mail in Zurich",
    "e mail in Zurich",
    "email in Zurich",
  ]);
});
