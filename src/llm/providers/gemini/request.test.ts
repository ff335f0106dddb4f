/** What a Gemini call looks like on the wire. */
import { describe, expect, test } from "vitest";
import {
  call,
  completionInput,
  media,
  reasoning,
  result,
  says,
  state,
  text,
} from "../../../../test/support/completion-input.js";
import {
  Role,
  ToolChoiceMode,
  type CompletionInput,
} from "../../../../gen/turnwire/llm/v1/llm_proxy_service_pb.js";
import { ReasoningEffort } from "../../../../gen/turnwire/packet/v1/common_pb.js";
import { modelOf } from "../../config.js";
import { createGeminiDialect } from "./dialect.js";
import { GEMINI_STATE, type GeminiState } from "./state.js";

const dialect = createGeminiDialect({
  baseUrl: "https://generativelanguage.googleapis.com/v1beta",
  quirks: {},
});

const build = (input: CompletionInput, upstreamModel = "gemini-2.5-flash", reasoning?: boolean) =>
  dialect.buildRequest(input, { ...modelOf("m", "p"), upstreamModel, reasoning });
const contents = (input: CompletionInput, upstreamModel?: string): unknown =>
  build(input, upstreamModel).body["contents"];
const kept = (value: GeminiState) =>
  state({ provider: GEMINI_STATE, data: Buffer.from(JSON.stringify(value)) });
const tools = ["f", "g"].map((name) => ({
  name,
  description: `does ${name}`,
  parametersJsonSchema: `{"type":"object"}`,
}));

describe("gemini requests", () => {
  test("system apart, neighbours of one role together", () => {
    const request = build(
      completionInput([
        says(Role.SYSTEM, text("Be brief.")),
        says(
          Role.USER,
          text("Look"),
          media("image/png", Buffer.from("p")),
          media("application/pdf", "https://a.test/x.pdf"),
        ),
        says(Role.ASSISTANT, text("Yes")),
        says(Role.USER, text("And?")),
        says(Role.REMINDER, text("Two calls are left.")),
      ]),
    );
    expect(request.path).toBe("/models/gemini-2.5-flash:streamGenerateContent?alt=sse");
    expect(request.body).toEqual({
      systemInstruction: { parts: [{ text: "Be brief." }] },
      contents: [
        {
          role: "user",
          parts: [
            { text: "Look" },
            { inlineData: { mimeType: "image/png", data: "cA==" } },
            { fileData: { mimeType: "application/pdf", fileUri: "https://a.test/x.pdf" } },
          ],
        },
        { role: "model", parts: [{ text: "Yes" }] },
        { role: "user", parts: [{ text: "And?" }, { text: "Two calls are left." }] },
      ],
      generationConfig: { thinkingConfig: { includeThoughts: true } },
    });
    expect(build(completionInput(), "endpoints/7").path).toBe("/endpoints/7:streamGenerateContent?alt=sse");
  });

  test.each([
    ["..", "/models/.."],
    ["../../v1/files", "/models/..%2F..%2Fv1%2Ffiles"],
    ["tunedModels/../files", "/models/tunedModels%2F..%2Ffiles"],
    ["/files?a#b", "/models/%2Ffiles%3Fa%23b"],
  ])("the model %s leads to no other place", (upstreamModel, path) => {
    const built = build(completionInput(), upstreamModel).path;
    expect(built).toBe(`${path}:streamGenerateContent?alt=sse`);
    expect(new URL(`http://a/v1${built}`).pathname).toBe(`/v1${path}:streamGenerateContent`);
  });

  test("signatures go back with their parts, ids only where they are Gemini's own", () => {
    const input = completionInput([
      says(Role.USER, text("x")),
      says(
        Role.ASSISTANT,
        reasoning("hm"),
        text("Looking"),
        kept({ kind: "text", signature: "t" }),
        call("call_1", "f", `{"a":1}`),
        kept({ kind: "call", callId: "call_1", signature: "s", wireId: false }),
        call("w2", "g", "not json"),
        kept({ kind: "call", callId: "w2", signature: "", wireId: true }),
        state({ provider: "another", data: Buffer.from("{}") }),
      ),
      says(Role.TOOL, result("call_1", "one")),
      says(Role.TOOL, result("w2", "bad", true)),
    ]);
    expect(contents(input)).toEqual([
      { role: "user", parts: [{ text: "x" }] },
      {
        role: "model",
        parts: [
          { text: "Looking", thoughtSignature: "t" },
          { functionCall: { name: "f", args: { a: 1 } }, thoughtSignature: "s" },
          { functionCall: { id: "w2", name: "g", args: {} } },
        ],
      },
      {
        role: "user",
        parts: [
          { functionResponse: { name: "f", response: { output: "one" } } },
          { functionResponse: { id: "w2", name: "g", response: { error: "bad" } } },
        ],
      },
    ]);
  });

  test("a signature whose call was dropped goes nowhere; parts of the server's tools go back whole", () => {
    const part = { executableCode: { language: "PYTHON", code: "1" } };
    const input = completionInput([
      says(Role.USER, text("x")),
      says(
        Role.ASSISTANT,
        kept({ kind: "call", callId: "gone", signature: "s", wireId: false }),
        kept({ kind: "part", part }),
        kept({ kind: "text", signature: "t" }),
      ),
    ]);
    expect(contents(input)).toMatchObject([
      { role: "user" },
      { role: "model", parts: [part, { text: "", thoughtSignature: "t" }] },
    ]);
  });

  test("calls that another model made - only models that insist on signatures get a stand-in, on the first call", () => {
    const input = completionInput([
      says(Role.USER, text("x")),
      says(Role.ASSISTANT, call("a", "f", "{}"), call("b", "g", "{}")),
      says(Role.TOOL, result("a", "1"), result("b", "2")),
    ]);
    const model = (id: string): unknown => (contents(input, id) as unknown[])[1];
    expect(JSON.stringify(model("gemini-2.5-pro"))).not.toContain("thoughtSignature");
    expect(model("gemini-3-pro-preview")).toEqual({
      role: "model",
      parts: [
        { functionCall: { name: "f", args: {} }, thoughtSignature: "skip_thought_signature_validator" },
        { functionCall: { name: "g", args: {} } },
      ],
    });
  });

  test("media of a tool stand after the results", () => {
    const shot = {
      callId: "a",
      text: "done",
      media: [{ mediaType: "image/png", source: { case: "data" as const, value: Buffer.from("p") } }],
    };
    const input = completionInput([
      says(Role.USER, text("x")),
      says(Role.ASSISTANT, call("a", "f", "{}")),
      says(Role.TOOL, { part: { case: "toolResult", value: shot } }),
    ]);
    expect((contents(input) as { parts: object[] }[])[2]?.parts).toEqual([
      { functionResponse: { name: "f", response: { output: "done" } } },
      { inlineData: { mimeType: "image/png", data: "cA==" } },
    ]);
  });

  test.each([
    [undefined, undefined],
    [{ mode: ToolChoiceMode.AUTO }, { mode: "AUTO" }],
    [{ mode: ToolChoiceMode.NONE }, { mode: "NONE" }],
    [{ mode: ToolChoiceMode.REQUIRED }, { mode: "ANY" }],
    [
      { mode: ToolChoiceMode.ONE, toolName: "g" },
      { mode: "ANY", allowedFunctionNames: ["g"] },
    ],
  ])("tools and the choice %j", (toolChoice, functionCallingConfig) => {
    const { body, dropped } = build(
      completionInput(undefined, { tools, ...(toolChoice && { toolChoice }), parallelToolCalls: false }),
    );
    const functionDeclarations = tools.map(({ name, description }) => ({
      name,
      description,
      parametersJsonSchema: { type: "object" },
    }));
    expect(body["tools"]).toEqual([{ functionDeclarations }]);
    expect(body["toolConfig"]).toEqual(functionCallingConfig && { functionCallingConfig });
    expect(dropped).toEqual(["parallel_tool_calls"]);
  });

  test.each([
    ["gemini-2.5-flash", ReasoningEffort.OFF, { thinkingBudget: 0, includeThoughts: false }],
    ["gemini-2.5-pro", ReasoningEffort.OFF, { thinkingBudget: 128, includeThoughts: false }],
    ["gemini-2.5-flash", ReasoningEffort.MEDIUM, { thinkingBudget: 8_192, includeThoughts: true }],
    ["gemini-3-pro-preview", ReasoningEffort.MEDIUM, { thinkingLevel: "high", includeThoughts: true }],
    ["gemini-3-flash-preview", ReasoningEffort.OFF, { thinkingLevel: "minimal", includeThoughts: false }],
    ["gemini-9-flash", ReasoningEffort.LOW, { thinkingLevel: "low", includeThoughts: true }],
    ["gemini-2.0-flash", ReasoningEffort.HIGH, undefined],
    ["gemini-2.5-flash-image", ReasoningEffort.UNSPECIFIED, undefined],
  ])("%s reasons with effort %i", (model, reasoningEffort, thinkingConfig) => {
    const { body, dropped } = build(completionInput(undefined, { reasoningEffort }), model);
    expect((body["generationConfig"] as Record<string, unknown> | undefined)?.["thinkingConfig"]).toEqual(
      thinkingConfig,
    );
    expect(dropped).toEqual(
      thinkingConfig || reasoningEffort === ReasoningEffort.UNSPECIFIED ? [] : ["reasoning_effort"],
    );
  });

  test("sampling, what a model does not take is said", () => {
    const sampling = {
      temperature: 0.5,
      topP: 0.9,
      maxOutputTokens: 10,
      seed: "7",
      stop: ["a", "b", "c", "d", "e", "f"],
      presencePenalty: 1,
      frequencyPenalty: 0,
    };
    const old = build(completionInput(undefined, { sampling }), "gemini-2.0-flash");
    expect(old.body["generationConfig"]).toEqual({
      ...{
        temperature: 0.5,
        topP: 0.9,
        maxOutputTokens: 10,
        seed: 7,
        stopSequences: ["a", "b", "c", "d", "e"],
      },
      ...{ presencePenalty: 1, frequencyPenalty: 0 },
    });
    expect(old.dropped).toEqual(["stop"]);
    const recent = build(
      completionInput(undefined, { sampling: { seed: "5000000000", presencePenalty: 1 } }),
    );
    expect(recent.dropped).toEqual(["presence_penalty", "seed"]);
  });

  test("a JSON answer, beside tools only where the model can", () => {
    const responseFormat = { jsonSchema: `{"type":"object"}` };
    const format = { responseMimeType: "application/json", responseJsonSchema: { type: "object" } };
    expect(build(completionInput(undefined, { responseFormat })).body["generationConfig"]).toMatchObject(
      format,
    );
    const both = completionInput(undefined, { responseFormat, tools });
    expect(build(both).dropped).toEqual(["response_format"]);
    expect(build(both, "gemini-3-flash-preview").body["generationConfig"]).toMatchObject(format);
  });

  test("own fields are merged, tools of the server stand beside ours, the conversation is ours", () => {
    const providerOptionsJson = JSON.stringify({
      tools: [{ googleSearch: {} }],
      generationConfig: { topK: 5, thinkingConfig: { thinkingBudget: 1 } },
      safetySettings: [],
    });
    const { body } = build(completionInput(undefined, { tools, providerOptionsJson }));
    expect(body["tools"]).toMatchObject([
      { functionDeclarations: [{ name: "f" }, { name: "g" }] },
      { googleSearch: {} },
    ]);
    expect(body["generationConfig"]).toEqual({
      topK: 5,
      thinkingConfig: { includeThoughts: true, thinkingBudget: 1 },
    });
    expect(body["safetySettings"]).toEqual([]);
    const sly = completionInput(undefined, {
      providerOptionsJson: `{"__proto__":{"a":1},"generationConfig":{"__proto__":{"a":1},"topK":1}}`,
    });
    expect(build(sly).body["generationConfig"]).toEqual({
      thinkingConfig: { includeThoughts: true },
      topK: 1,
    });
    expect(Object.getPrototypeOf(build(sly).body)).toBe(Object.prototype);
    expect(() => build(completionInput(undefined, { providerOptionsJson: `{"contents":[]}` }))).toThrow(
      "must not set contents",
    );
  });

  test("calls that cannot be sent name the field", () => {
    const orphan = completionInput([says(Role.TOOL, result("nobody", "x"))]);
    expect(() => build(orphan)).toThrow("input.messages[0].parts[0].tool_result.call_id");
    const one = { toolChoice: { mode: ToolChoiceMode.ONE, toolName: "h" }, tools };
    expect(() => build(completionInput(undefined, one))).toThrow("input.tool_choice.tool_name");
    expect(() =>
      build(completionInput(undefined, { tools: [{ name: "f", parametersJsonSchema: "[" }] })),
    ).toThrow("input.tools[0].parameters_json_schema");
  });
});

describe("gemini servers", () => {
  const outgoing = { method: "POST", url: "https://x.test", headers: {}, body: "" } as const;
  const vertex = createGeminiDialect({
    baseUrl: "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google",
    quirks: {},
  });
  const keyed = (quirk: string) =>
    createGeminiDialect({ baseUrl: "https://x.test", quirks: { auth: quirk } });

  test("keys here, tokens at Vertex AI, as told elsewhere", () => {
    expect(dialect.authorize(outgoing, "k")).toEqual({ "x-goog-api-key": "k" });
    expect(vertex.authorize(outgoing, "ya29.token")).toEqual({ authorization: "Bearer ya29.token" });
    expect(vertex.authorize(outgoing, "AIzaKey")).toEqual({ "x-goog-api-key": "AIzaKey" });
    expect(keyed("bearer").authorize(outgoing, "k")).toEqual({ authorization: "Bearer k" });
    expect(dialect.authorize(outgoing, undefined)).toEqual({});
    expect(() => keyed("cookie")).toThrow("quirks.auth");
  });

  test("models that generate, the best default first", () => {
    const answer = {
      models: [
        { name: "models/embed", supportedGenerationMethods: ["embedContent"] },
        {
          name: "models/gemini-2.5-pro",
          inputTokenLimit: 1_048_576,
          supportedGenerationMethods: ["generateContent"],
        },
        { name: "models/gemini-2.5-flash", supportedGenerationMethods: ["generateContent", "countTokens"] },
      ],
    };
    expect(dialect.modelList?.read(answer)).toEqual([
      { id: "gemini-2.5-flash", ownedBy: "google", contextTokens: 0 },
      { id: "gemini-2.5-pro", ownedBy: "google", contextTokens: 1_048_576 },
    ]);
    expect(dialect.modelList?.read({})).toEqual([]);
  });

  test("embeddings of both servers", () => {
    const model = { ...modelOf("m", "p"), upstreamModel: "gemini-embedding-001" };
    expect(dialect.embedding?.request(["a"], model)).toMatchObject({
      path: "/models/gemini-embedding-001:batchEmbedContents",
      body: { requests: [{ model: "models/gemini-embedding-001", content: { parts: [{ text: "a" }] } }] },
    });
    expect(dialect.embedding?.read({ embeddings: [{ values: [1, 2] }] })).toEqual({
      vectors: [[1, 2]],
      inputTokens: 0,
    });
    expect(vertex.embedding?.request(["a"], model)).toMatchObject({
      path: "/models/gemini-embedding-001:predict",
      body: { instances: [{ content: "a" }] },
    });
    const predictions = [{ embeddings: { values: [1], statistics: { token_count: 3 } } }];
    expect(vertex.embedding?.read({ predictions })).toEqual({ vectors: [[1]], inputTokens: 3 });
  });

  test("token counts of both servers", () => {
    const model = { ...modelOf("m", "p"), upstreamModel: "gemini-2.5-flash" };
    const request = dialect.tokenCount?.request(completionInput(), model);
    expect(request).toMatchObject({
      path: "/models/gemini-2.5-flash:countTokens",
      body: { generateContentRequest: { model: "models/gemini-2.5-flash" } },
    });
    expect(vertex.tokenCount?.request(completionInput(), model).body).toMatchObject({
      contents: [{ role: "user" }],
    });
    expect(dialect.tokenCount?.read({ totalTokens: 5 })).toBe(5);
  });
});
