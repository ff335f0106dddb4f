/** What a Bedrock call looks like on the wire, and how it is signed. */
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
import { createBedrockConverseDialect } from "./dialect.js";
import { BEDROCK_REASONING_STATE } from "./reader.js";
import { awsKeyOf, parseAwsCredentials, signAwsRequest } from "./sign.js";

const BASE_URL = "https://bedrock-runtime.eu-central-1.amazonaws.com";
const CLAUDE = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0";
const LLAMA = "meta.llama3-1-70b-instruct-v1:0";

const dialect = createBedrockConverseDialect({ baseUrl: BASE_URL, quirks: {} });
const build = (input: CompletionInput, upstreamModel = CLAUDE) =>
  dialect.buildRequest(input, { ...modelOf("m", "p"), upstreamModel });
const tools = ["f", "g"].map((name) => ({
  name,
  description: "d",
  parametersJsonSchema: `{"type":"object"}`,
}));
const spec = (name: string) => ({
  toolSpec: { name, description: "d", inputSchema: { json: { type: "object" } } },
});

describe("bedrock requests", () => {
  test("a conversation with media, reasoning, calls and results", () => {
    const block = { reasoningText: { text: "hm", signature: "sig" } };
    const { path, body } = build(
      completionInput([
        says(Role.SYSTEM, text("Be brief.")),
        says(
          Role.USER,
          text("Look"),
          media("image/jpeg", Buffer.from("p")),
          media("application/pdf", Buffer.from("d"), "Q3_report.pdf"),
          media("application/pdf", Buffer.from("d"), "Q3_report.pdf"),
          media("video/mp4", "s3://bucket/v.mp4"),
        ),
        says(
          Role.ASSISTANT,
          reasoning("hm"),
          state({ provider: BEDROCK_REASONING_STATE, data: Buffer.from(JSON.stringify(block)) }),
          text("  "),
          call("t1", "f", `{"a":1}`),
          call("not:a bedrock id", "g", "broken"),
        ),
        says(Role.TOOL, result("t1", "one")),
        says(Role.TOOL, result("not:a bedrock id", "", true)),
        says(Role.REMINDER, text("One call is left.")),
      ]),
    );
    expect(path).toBe("/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream");
    expect(body["system"]).toEqual([{ text: "Be brief." }]);
    expect(body["messages"]).toEqual([
      {
        role: "user",
        content: [
          { text: "Look" },
          { image: { format: "jpeg", source: { bytes: "cA==" } } },
          { document: { format: "pdf", name: "Q3-report-pdf", source: { bytes: "ZA==" } } },
          { document: { format: "pdf", name: "Q3-report-pdf (2)", source: { bytes: "ZA==" } } },
          { video: { format: "mp4", source: { s3Location: { uri: "s3://bucket/v.mp4" } } } },
        ],
      },
      {
        role: "assistant",
        content: [
          { reasoningContent: block },
          { toolUse: { toolUseId: "t1", name: "f", input: { a: 1 } } },
          { toolUse: { toolUseId: "tooluse_1", name: "g", input: {} } },
        ],
      },
      {
        role: "user",
        content: [
          { toolResult: { toolUseId: "t1", content: [{ text: "one" }], status: "success" } },
          { toolResult: { toolUseId: "tooluse_1", content: [{ text: "(empty)" }], status: "error" } },
          { text: "One call is left." },
        ],
      },
    ]);
  });

  test("tools that were called stay declared, also where none is offered any more", () => {
    const messages = [
      says(Role.USER, text("x")),
      says(Role.ASSISTANT, call("t1", "f", "{}")),
      says(Role.TOOL, result("t1", "1")),
    ];
    const none = { mode: ToolChoiceMode.NONE };
    expect(build(completionInput(messages)).body["toolConfig"]).toMatchObject({
      tools: [{ toolSpec: { name: "f" } }],
    });
    const kept = build(completionInput(messages, { tools, toolChoice: none }));
    expect(kept.body["toolConfig"]).toEqual({ tools: tools.map(({ name }) => spec(name)) });
    expect(kept.dropped).toEqual(["tool_choice"]);
    const unused = build(completionInput(undefined, { tools, toolChoice: none }));
    expect(unused).toMatchObject({ dropped: [] });
    expect(unused.body["toolConfig"]).toBeUndefined();
  });

  test.each([
    [CLAUDE, ToolChoiceMode.AUTO, undefined, []],
    [CLAUDE, ToolChoiceMode.REQUIRED, { any: {} }, []],
    [CLAUDE, ToolChoiceMode.ONE, { tool: { name: "g" } }, []],
    [LLAMA, ToolChoiceMode.REQUIRED, undefined, ["tool_choice"]],
  ])("%s with tool choice %i", (model, mode, toolChoice, dropped) => {
    const request = build(completionInput(undefined, { tools, toolChoice: { mode, toolName: "g" } }), model);
    expect(request.body["toolConfig"]).toEqual({
      tools: tools.map(({ name }) => spec(name)),
      ...(toolChoice && { toolChoice }),
    });
    expect(request.dropped).toEqual(dropped);
  });

  test.each([
    [CLAUDE, ReasoningEffort.HIGH, { thinking: { type: "enabled", budget_tokens: 24_576 } }],
    [
      "anthropic.claude-opus-4-6-v1",
      ReasoningEffort.LOW,
      { thinking: { type: "adaptive" }, output_config: { effort: "low" } },
    ],
    [
      "us.amazon.nova-2-lite-v1:0",
      ReasoningEffort.MEDIUM,
      { reasoningConfig: { type: "enabled", maxReasoningEffort: "medium" } },
    ],
    ["us.amazon.nova-2-lite-v1:0", ReasoningEffort.OFF, { reasoningConfig: { type: "disabled" } }],
    ["openai.gpt-oss-120b-1:0", ReasoningEffort.HIGH, { reasoning_effort: "high" }],
    [CLAUDE, ReasoningEffort.OFF, undefined],
  ])("%s with effort %i", (model, reasoningEffort, fields) => {
    const { body, dropped } = build(completionInput(undefined, { reasoningEffort }), model);
    expect(body["additionalModelRequestFields"]).toEqual(fields);
    expect(dropped).toEqual([]);
  });

  test("while Claude reasons it takes no temperature and no forced tool; a budget stays below the limit", () => {
    const input = (maxOutputTokens: number): CompletionInput =>
      completionInput(undefined, {
        tools,
        toolChoice: { mode: ToolChoiceMode.REQUIRED },
        reasoningEffort: ReasoningEffort.HIGH,
        sampling: { temperature: 0.5, maxOutputTokens },
      });
    const { body, dropped } = build(input(10_000));
    expect(body["additionalModelRequestFields"]).toEqual({
      thinking: { type: "enabled", budget_tokens: 8_192 },
    });
    expect(body["inferenceConfig"]).toEqual({ maxTokens: 10_000 });
    expect(dropped).toEqual(["temperature", "tool_choice"]);
    const small = build(input(500));
    expect(small.body["additionalModelRequestFields"]).toBeUndefined();
    expect(small.body["inferenceConfig"]).toEqual({ maxTokens: 500, temperature: 0.5 });
    expect(small.dropped).toEqual(["reasoning_effort"]);
    expect(
      build(completionInput(undefined, { reasoningEffort: ReasoningEffort.LOW }), LLAMA).dropped,
    ).toEqual(["reasoning_effort"]);
  });

  test("sampling, what Bedrock does not know is said", () => {
    const sampling = {
      temperature: 1.5,
      topP: 0.9,
      seed: "7",
      stop: ["a", "b", "c", "d", "e"],
      presencePenalty: 1,
      frequencyPenalty: 1,
    };
    const plain = build(completionInput(undefined, { sampling }), LLAMA);
    expect(plain.body["inferenceConfig"]).toEqual({
      temperature: 1,
      topP: 0.9,
      stopSequences: ["a", "b", "c", "d"],
    });
    expect(plain.dropped).toEqual([
      ...["temperature", "seed", "presence_penalty", "frequency_penalty"],
      "stop",
    ]);
    expect(build(completionInput(undefined, { sampling: { temperature: 0, topP: 0.9 } })).dropped).toEqual([
      "top_p",
    ]);
  });

  test("cache points after the last four marked messages, for models that have them", () => {
    const marked = (n: number) => ({
      ...says(n % 2 ? Role.ASSISTANT : Role.USER, text(`${n}`)),
      cacheBreakpoint: true,
    });
    const input = completionInput([
      { ...says(Role.SYSTEM, text("s")), cacheBreakpoint: true },
      marked(0),
      marked(1),
      marked(2),
      marked(3),
      says(Role.USER, text("x")),
    ]);
    const point = { cachePoint: { type: "default" } };
    const { body } = build(input);
    expect(body["system"]).toEqual([{ text: "s" }]);
    expect(body["messages"]).toMatchObject(
      ["0", "1", "2", "3"]
        .map((value) => ({ content: [{ text: value }, point] }))
        .concat([{ content: [{ text: "x" }] }] as never),
    );
    expect(JSON.stringify(build(input, LLAMA).body)).not.toContain("cachePoint");
  });

  test("a JSON answer, own fields", () => {
    const providerOptionsJson = `{"guardrailConfig":{"guardrailIdentifier":"g"},"additionalModelRequestFields":{"top_k":5}}`;
    const { body } = build(
      completionInput(undefined, {
        responseFormat: { name: "n", jsonSchema: `{"type":"object"}` },
        providerOptionsJson,
        reasoningEffort: ReasoningEffort.LOW,
      }),
    );
    expect(body["outputConfig"]).toEqual({
      textFormat: {
        type: "json_schema",
        structure: { jsonSchema: { name: "n", schema: `{"type":"object"}` } },
      },
    });
    expect(body).toMatchObject({
      guardrailConfig: { guardrailIdentifier: "g" },
      additionalModelRequestFields: { top_k: 5, thinking: {} },
    });
    expect(build(completionInput(undefined, { responseFormat: {} })).dropped).toEqual(["response_format"]);
  });

  test("media that Bedrock cannot take name the field", () => {
    const sends = (mediaType: string, content: Buffer | string) => () =>
      build(completionInput([says(Role.USER, media(mediaType, content))]));
    expect(sends("image/tiff", Buffer.from("p"))).toThrow("input.messages[0].parts[0].media");
    expect(sends("image/png", "https://a.test/x.png")).toThrow("must hold its data");
  });
});

describe("bedrock servers", () => {
  const request = {
    method: "POST",
    url: `${BASE_URL}/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream`,
    headers: { "content-type": "application/json" },
    body: `{"messages":[]}`,
  } as const;
  const key = "AKIDEXAMPLE1234567:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

  // The expected signatures were computed with botocore.
  test.each([
    [key, "content-type;host;x-amz-date", "4a3baeb51566f30602377ebe75426decab8229dec3ab1491077fff03196bd2bc"],
    [
      `${key}:session/Token+1==`,
      "content-type;host;x-amz-date;x-amz-security-token",
      "2e38af5d3b1006b1fbf2ea81b7444e311056a70ac2d92a129c73f984149d4f64",
    ],
  ])("requests are signed as AWS wants it", (credentials, headers, signature) => {
    const parsed = parseAwsCredentials(credentials);
    const signed = parsed && signAwsRequest(request, parsed, "eu-central-1", "20261130T200000Z");
    expect(signed?.["authorization"]).toBe(
      `AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE1234567/20261130/eu-central-1/bedrock/aws4_request, SignedHeaders=${headers}, Signature=${signature}`,
    );
    expect(signed?.["x-amz-date"]).toBe("20261130T200000Z");
    expect(signed?.["x-amz-security-token"]).toBe(parsed?.sessionToken || undefined);
  });

  test("credentials sign, an API key is a bearer token", () => {
    expect(dialect.authorize(request, key)["authorization"]).toMatch(
      /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE1234567\/\d{8}\/eu-central-1\//,
    );
    expect(dialect.authorize(request, "ABSKQmVkcm9ja0FQSUtleQ==")).toEqual({
      authorization: "Bearer ABSKQmVkcm9ja0FQSUtleQ==",
    });
    expect(dialect.authorize(request, undefined)).toEqual({});
    const named = createBedrockConverseDialect({
      baseUrl: "http://127.0.0.1:9",
      quirks: { region: "us-west-2" },
    });
    expect(named.authorize(request, key)["authorization"]).toContain("/us-west-2/bedrock/");
    expect(() => createBedrockConverseDialect({ baseUrl: BASE_URL, quirks: { region: 7 } })).toThrow(
      "quirks.region",
    );
  });

  test("what AWS's tools find in the environment", () => {
    const env = { AWS_ACCESS_KEY_ID: "AKIDEXAMPLE1234567", AWS_SECRET_ACCESS_KEY: "wJalrXUtnFEMI/K7MDENG" };
    expect(awsKeyOf(env)).toBe("AKIDEXAMPLE1234567:wJalrXUtnFEMI/K7MDENG");
    expect(parseAwsCredentials(awsKeyOf({ ...env, AWS_SESSION_TOKEN: "t==" }) ?? "")?.sessionToken).toBe(
      "t==",
    );
    expect(awsKeyOf({ ...env, AWS_BEARER_TOKEN_BEDROCK: "b" })).toBe("b");
    expect(awsKeyOf({ AWS_ACCESS_KEY_ID: "AKIDEXAMPLE1234567" })).toBeUndefined();
  });

  test("embeddings and token counts", () => {
    const titan = { ...modelOf("e", "p"), upstreamModel: "amazon.titan-embed-text-v2:0" };
    expect(dialect.embedding?.request(["a"], titan)).toMatchObject({
      path: "/model/amazon.titan-embed-text-v2%3A0/invoke",
      body: { inputText: "a" },
    });
    expect(dialect.embedding?.read({ embedding: [1, 2], inputTextTokenCount: 3 })).toEqual({
      vectors: [[1, 2]],
      inputTokens: 3,
    });
    const count = dialect.tokenCount?.request(completionInput(), {
      ...modelOf("m", "p"),
      upstreamModel: CLAUDE,
    });
    expect(count).toMatchObject({
      body: { input: { converse: { messages: [{ role: "user", content: [{ text: "x" }] }] } } },
    });
    expect(dialect.tokenCount?.read({ inputTokens: 4 })).toBe(4);
  });
});
