/** What people and models ask for, in several languages and ways of writing, and what must come first. */
import { expect, test } from "vitest";
import { searchPassages, type FoundPassage } from "../../src/documents/pg-document-index.js";
import { upload, useDocuments, type TestDocuments } from "../support/documents-fixture.js";
import { usePostgres } from "../support/postgres.js";
import { useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const db = useStore(postgres);
const OWNER = { tenantId: "acme", userId: "alice" };

/** Titles and texts; what each is for stands in the cases below. */
const LIBRARY: Readonly<Record<string, string>> = {
  returns:
    "# Returns\n\nCustomers may send goods back within thirty days of delivery. The refund is paid to the card that was used. Goods on sale cannot be exchanged.",
  shipping:
    "# Shipping\n\nParcels leave the warehouse on the day of the order. Delivery takes two days. Returns are described on another page.",
  hamlet:
    "The prince speaks alone: to be, or not to be, that is the question. Whether it is nobler in the mind to suffer, the audience never learns.",
  band: "# The Who\n\nThe band was founded in London and played the loudest concert of its decade, as the book of records says.",
  errors:
    "# Troubleshooting\n\nThe pump stops and shows E1234 when the pressure is too low. Error E-77 means that the lid is open. Check the valve, then press the reset key.",
  code: "# Client library\n\nCall `fetchUserName(id)` or `retry_with_backoff()`; paths are joined by os.path.join and the limit is config.maxRetries. The module is described in this chapter for developers.",
  contacts:
    "# Contacts\n\nWrite to jane.doe@example.org or see https://status.example.com/incidents/2024 for what is broken. The office is open from nine to five.",
  minutes:
    "# Minutes\n\nThe board met on 2024-05-17 and approved a budget of 48500 euros. The next meeting follows in the autumn. All members were present.",
  mail: "# Mailbox rules\n\nEach e-mail is kept for ten years. The well-known exceptions are listed in the annex of this policy for all staff.",
  zuerich:
    "# Ausflug nach Zürich\n\nDie Gärten der Stadt sind im Frühling am schönsten. Die Häuser am Fluss stehen unter Denkmalschutz, und die Straßen sind eng.",
  kuendigung:
    "# Kündigung\n\nDie Kündigungsfrist beträgt drei Monate zum Ende des Quartals. Die Kündigung muss schriftlich erfolgen und von beiden Seiten bestätigt werden.",
  cafe: "# Le café de la gare\n\nLes élèves déjeunent au café près de la gare. La crème brûlée y est servie tiède, et les prix sont restés les mêmes depuis des années.",
  manana:
    "# Mañana\n\nLos niños juegan en el jardín por la mañana, y las montañas se ven desde la ventana. El año que viene la casa será más grande para todos.",
  tokyo: "# 東京の庭\n\n東京都の庭師は日の出前に花に水をやっていた。村の丘で黒猫が鳴いた。",
  seoul: "# 서울 안내\n\n서울에서 가장 오래된 시장은 강 북쪽에 있다. 도서관은 매일 아침 아홉 시에 문을 연다.",
  moskva:
    "# Библиотека\n\nВ городской библиотеке хранятся старые рукописи. Читатели могут заказывать книги на дом, а ёлка стоит в зале зимой.",
  mixed:
    "# Notes of two languages\n\nThe invoice was checked by the accountants twice. Die Rechnung wurde zweimal geprüft. The payment was then released to the supplier without delay.",
};

/** A query, and the title that must come first; null = nothing is found. */
const CASES: readonly (readonly [query: string, first: string | null])[] = [
  ["return goods", "returns"],
  ["returns", "returns"],
  ["refunds for customers", "returns"],
  ["delivery time of parcels", "shipping"],
  ["to be or not to be", "hamlet"],
  ["the who", "band"],
  ["The Who?", "band"],
  ["loudest concert", "band"],
  ["E1234", "errors"],
  ["e1234 pump", "errors"],
  ["E77", "errors"],
  ["E-1234", "errors"],
  ["fetchUserName", "code"],
  ["fetch user name", "code"],
  ["fetch_user_name", "code"],
  ["fetchusername", "code"],
  ["retry_with_backoff", "code"],
  ["backoff", "code"],
  ["retryWithBackoff", "code"],
  ["os.path.join", "code"],
  ["maxRetries", "code"],
  ["max retries", "code"],
  ["jane.doe@example.org", "contacts"],
  ["jane doe", "contacts"],
  ["https://status.example.com/incidents/2024", "contacts"],
  ["status.example.com", "contacts"],
  ["incidents", "contacts"],
  ["2024-05-17", "minutes"],
  ["48500", "minutes"],
  ["17 05 2024", "minutes"],
  ["email", "mail"],
  ["e-mail", "mail"],
  ["well known exceptions", "mail"],
  ["Zürich", "zuerich"],
  ["zurich", "zuerich"],
  ["Garten Haus", "zuerich"],
  ["strassen", "zuerich"],
  ["Ku\u0308ndigung", "kuendigung"],
  ["kundigung schriftlich", "kuendigung"],
  ["Kündigungsfrist", "kuendigung"],
  ["Kündigungsfr", "kuendigung"],
  ["cafe gare", "cafe"],
  ["café", "cafe"],
  ["creme brulee", "cafe"],
  ["élève", "cafe"],
  ["manana", "manana"],
  ["niño montaña", "manana"],
  ["nino jardin", "manana"],
  ["東京", "tokyo"],
  ["東京都", "tokyo"],
  ["猫", "tokyo"],
  ["庭", "tokyo"],
  ["서울", "seoul"],
  ["도서관", "seoul"],
  ["рукопись", "moskva"],
  ["книга елка", "moskva"],
  ["Rechnung", "mixed"],
  ["invoices accountant", "mixed"],
  ["ＩＮＶＯＩＣＥ", "mixed"],
  ["accountan", "mixed"],
  ['"the lid is open"', "errors"],
  ['"card that was used"', "returns"],
  ["„zum Ende des Quartals“", "kuendigung"],
  ["quarterly-report", "figures of the company"],
  ["Q3_quarterly-report_final.md", "figures of the company"],
  ["quarterly report", "figures of the company"],
  [`${"returns goods customers ".repeat(80)}`, "returns"],
  ["Where can I find the rules about how long each e-mail has to be kept by us, and for whom?", "mail"],
  ["xylophone", null],
  ["' \" ( ) & | ! <-> :* \\", null],
  ['""', null],
  ["猫猫猫猫", null],
];

async function addLibrary(service: TestDocuments): Promise<void> {
  const ids: string[] = [];
  for (const [title, value] of Object.entries(LIBRARY)) {
    const { document } = await service.documents.addDocument({ title, source: { case: "text", value } });
    ids.push(document!.documentId);
  }
  const figures = Buffer.from("Sales rose in all regions. Costs fell. The outlook is stable for the year.");
  const fileId = await upload(service.files, figures, { name: "Q3_quarterly-report_final.md" });
  const { document } = await service.documents.addDocument({
    title: "figures of the company",
    source: { case: "fileId", value: fileId },
  });
  for (const id of [...ids, document!.documentId]) await service.settled(id);
}

test("search quality - what is asked for comes first", async () => {
  const service = await useDocuments({ url: postgres.url, store: db.store });
  await addLibrary(service);
  const wrong: string[] = [];
  for (const [query, first] of CASES) {
    const found: readonly FoundPassage[] = await searchPassages(service.channel, OWNER, query, {}, 5);
    const titles = found.map(({ title }) => title);
    if ((titles[0] ?? null) !== first)
      wrong.push(`${query.slice(0, 60)} -> ${titles.join(", ") || "nothing"}`);
  }
  expect(wrong).toEqual([]);
});

test("search quality - a document with thousands of matching passages hides no other", async () => {
  const service = await useDocuments({ url: postgres.url, store: db.store });
  const add = async (title: string, value: string): Promise<void> => {
    const fileId = await upload(service.files, Buffer.from(value), { name: "a.md" });
    const { document } = await service.documents.addDocument({
      title,
      source: { case: "fileId", value: fileId },
    });
    await service.settled(document!.documentId);
  };
  const section = `# Turbine\n\nA turbine has blades, and the turbine turns; the turbine hums. ${"It goes on. ".repeat(36)}\n\n`;
  await add("handbook", section.repeat(2_500));
  await add("manual", section.repeat(2_000));
  await add("note", `${"Other things come first. ".repeat(20)}At the end a turbine is seen.`);
  const found = await searchPassages(service.channel, OWNER, "turbine", {}, 10);
  expect(found[0]!.title).toBe("handbook");
  expect(new Set(found.map(({ title }) => title))).toEqual(new Set(["handbook", "manual", "note"]));
});
