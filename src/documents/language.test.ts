import { expect, test } from "vitest";
import { detectLanguage } from "./language.js";

test.each([
  [
    "english",
    "The committee reviewed the annual report and decided that the budget for the next year should be raised.",
  ],
  [
    "german",
    "Der Ausschuss hat den Jahresbericht geprüft und beschlossen, dass der Haushalt für das nächste Jahr steigen soll.",
  ],
  [
    "french",
    "Le comité a examiné le rapport annuel et a décidé que le budget de l'année prochaine devait être augmenté.",
  ],
  [
    "spanish",
    "El comité revisó el informe anual y decidió que el presupuesto para el próximo año debería aumentarse.",
  ],
  ["russian", "Комитет рассмотрел годовой отчёт и решил, что бюджет на следующий год должен быть увеличен."],
  [
    "simple",
    "委員会は年次報告書を検討し、来年度の予算を増額することを決定した。委員会は年次報告書を検討し、来年度の予算を増額することを決定した。",
  ],
  ["simple", "x = 1"],
])("language - %s", (language, text) => {
  expect(detectLanguage(text)).toBe(language);
});

test("language - code and addresses around the prose do not count", () => {
  const code = "```ts\nconst la = document.querySelector(el);\n```\n".repeat(20);
  const prose =
    "Der Ausschuss hat den Jahresbericht geprüft und beschlossen, dass der Haushalt steigen soll.";
  expect(detectLanguage(`${code}\nhttps://example.com/la/le/les\n\n${prose}\n\n${code}`)).toBe("german");
});
