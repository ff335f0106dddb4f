/** From the documents of a tool's result to the citations of the answer: packets, fold and rows agree. */
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  CitationMode,
  ModelSelectionSchema,
  TurnOptionsSchema,
} from "../../gen/turnwire/chat/v1/types_pb.js";
import { Role } from "../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { DocumentSchema, TurnOutcome } from "../../gen/turnwire/packet/v1/common_pb.js";
import { ToolCallStatus } from "../../gen/turnwire/packet/v1/tools_pb.js";
import { ToolOutcome, ToolSchema } from "../../gen/turnwire/tool/v1/tool_service_pb.js";
import {
  answer,
  calls,
  cases,
  chat,
  hasResults,
  scriptedModels,
  scriptedTools,
  toolResult,
  type JudgedTurn,
} from "../support/chat-fixture.js";
import { runSql } from "../support/sql.js";
import { usePostgres } from "../support/postgres.js";
import { useStore } from "../support/store-fixtures.js";

const postgres = usePostgres();
const stores = useStore(postgres);

interface Asked {
  readonly text: string;
  readonly mode?: CitationMode;
  readonly urls?: readonly string[];
}

/** A turn with two calls at once; each finds one document. */
async function citing({
  text,
  mode,
  urls = ["https://ex.test/a", "https://ex.test/b"],
}: Asked): Promise<JudgedTurn & { readonly models: ReturnType<typeof scriptedModels> }> {
  const models = scriptedModels((request) =>
    hasResults(request) ? answer(text) : calls(["t", "{}"], ["t", "{}"]),
  );
  const tools = scriptedTools({
    t: (request) => {
      const url = urls[request.firstCitationNumber === 1 ? 0 : 1]!;
      const document = create(DocumentSchema, {
        documentId: `doc-${request.firstCitationNumber}`,
        url,
        citationNumber: request.firstCitationNumber,
      });
      return [toolResult("found", { documents: [document] })];
    },
  });
  const options = mode === undefined ? undefined : create(TurnOptionsSchema, { citationMode: mode });
  const turn = await chat({ store: stores.store, databaseUrl: postgres.url, models, tools }).run({ options });
  return { ...turn, models };
}

const textOf = ({ state }: JudgedTurn): string => state.lanes[0]!.text;
const numbersOf = ({ state }: JudgedTurn): (readonly [number, string])[] =>
  state.lanes[0]!.citations.map(({ number, document }) => [number, document!.documentId] as const);

describe("citations of a turn", () => {
  test("each call has its own numbers; a marker becomes a link, the lane knows its document", async () => {
    const turn = await citing({ text: "So it is [101]. And so [1, 7][99]." });
    expect(textOf(turn)).toBe("So it is [[101]](https://ex.test/b). And so [[1]](https://ex.test/a)[99].");
    expect(numbersOf(turn)).toEqual([
      [101, "doc-101"],
      [1, "doc-1"],
    ]);
    const order = cases(turn.packets);
    expect(order.filter((name) => name === "citationInfo")).toHaveLength(2);
    expect(order[order.indexOf("citationInfo") + 1]).toBe("agentResponseDelta");
  });

  test("a document without an address is cited by its number alone", async () => {
    const turn = await citing({ text: "Known 【1】.", urls: ["", ""] });
    expect(textOf(turn)).toBe("Known [1].");
    expect(numbersOf(turn)).toEqual([[1, "doc-1"]]);
  });

  test("markers are taken out, or left alone, where that is asked for", async () => {
    const removed = await citing({ text: "So it is [1]. [99]", mode: CitationMode.REMOVE });
    expect([textOf(removed), numbersOf(removed)]).toEqual(["So it is. [99]", []]);
    const kept = await citing({ text: "So it is 【1】.", mode: CitationMode.KEEP });
    expect([textOf(kept), numbersOf(kept)]).toEqual(["So it is 【1】.", []]);
  });

  test("each lane has numbers of its own, from 1 on, and its rows are those of its fold", async () => {
    const models = scriptedModels((request) =>
      hasResults(request) ? answer(`Of ${request.input!.modelId} [1].`) : calls(["t", "{}"]),
    );
    const firsts: number[] = [];
    const tools = scriptedTools({
      t: ({ callId, firstCitationNumber }) => {
        firsts.push(firstCitationNumber);
        const document = create(DocumentSchema, {
          documentId: `of ${callId}`,
          citationNumber: firstCitationNumber,
        });
        return [toolResult("found", { documents: [document] })];
      },
    });
    const { state, turnId } = await chat({
      ...{ store: stores.store, databaseUrl: postgres.url, models, tools },
    }).run({
      models: [
        create(ModelSelectionSchema, { modelId: "m-one" }),
        create(ModelSelectionSchema, { modelId: "m-two" }),
      ],
    });
    expect(firsts).toEqual([1, 1]);
    const cited = state.lanes.map(({ citations }) =>
      citations.map(({ number, document }) => [number, document!.documentId]),
    );
    expect(cited[0]).toEqual([[1, expect.stringMatching(/^of /)]]);
    expect(cited[1]).toEqual([[1, expect.stringMatching(/^of /)]]);
    expect(cited[0]).not.toEqual(cited[1]);
    const rows = await runSql(
      postgres.url,
      "select number, document_id from turnwire.citations where turn_id = $1 order by model_index",
      [turnId],
    );
    expect(rows.map((row) => [row["number"], row["document_id"]])).toEqual(cited.flat());
  });

  test("the model is told how to cite once there is something, and reads its own words as it wrote them", async () => {
    const told = await citing({ text: "A [1]." });
    const reminders = told.models.requests.map(({ input }) =>
      input!.messages.map(({ role }) => role).filter((role) => role === Role.REMINDER),
    );
    expect(reminders).toEqual([[], [Role.REMINDER]]);
    const quiet = await citing({ text: "A [1].", mode: CitationMode.REMOVE });
    expect(quiet.models.requests.at(-1)!.input!.messages.map(({ role }) => role)).not.toContain(
      Role.REMINDER,
    );
  });
});

describe("searches of one step", () => {
  test("run once with all queries; each call has its answer, and the packets say whose", async () => {
    const models = scriptedModels((request) =>
      hasResults(request)
        ? answer("done")
        : calls(["s", `{"queries":["a"]}`], ["s", `{"queries":["b"]}`], ["other", "{}"]),
    );
    const ran: string[] = [];
    const tools = scriptedTools({
      s: ({ argumentsJson }) => {
        ran.push(argumentsJson);
        return [toolResult("found a and b")];
      },
      other: () => [toolResult("ok")],
    });
    tools.tools = tools.tools.map((each) =>
      each.name === "s" ? create(ToolSchema, { ...each, mergeArgument: "queries" }) : each,
    );
    const { packets, state } = await chat({
      ...{ store: stores.store, databaseUrl: postgres.url, models, tools },
    }).run();
    expect(ran.map((json) => JSON.parse(json) as unknown)).toEqual([{ queries: ["a", "b"] }]);
    const ready = packets.flatMap(({ payload }) => (payload.case === "toolCallReady" ? [payload.value] : []));
    expect(ready.map(({ argumentsJson }) => argumentsJson)).toEqual([
      `{"queries":["a"]}`,
      `{"queries":["b"]}`,
      "{}",
    ]);
    expect(ready.map(({ mergedIntoCallId }) => mergedIntoCallId)).toEqual(["", ready[0]!.callId, ""]);
    expect(state.stop!.outcome).toBe(TurnOutcome.COMPLETED);
    const given = models.requests[1]!.input!.messages.filter(({ role }) => role === Role.TOOL);
    expect(given.map(({ parts }) => (parts[0]!.part.value as { text: string }).text)).toEqual([
      "found a and b",
      expect.stringMatching(/ran together/),
      "ok",
    ]);
  });

  test("a search that fails has failed for those that were merged into it", async () => {
    const models = scriptedModels((request) =>
      hasResults(request) ? answer("done") : calls(["s", `{"queries":["a"]}`], ["s", `{"queries":["b"]}`]),
    );
    const tools = scriptedTools({ s: () => [toolResult("no", { outcome: ToolOutcome.ERROR })] });
    tools.tools = tools.tools.map((each) => create(ToolSchema, { ...each, mergeArgument: "queries" }));
    const { packets } = await chat({ store: stores.store, databaseUrl: postgres.url, models, tools }).run();
    const results = packets.flatMap(({ payload }) =>
      payload.case === "toolCallResult" ? [payload.value] : [],
    );
    expect(results.map(({ status }) => status)).toEqual([ToolCallStatus.ERROR, ToolCallStatus.ERROR]);
  });
});
