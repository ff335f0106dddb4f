import { create, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { SessionSettingsSchema } from "../../../gen/turnwire/chat/v1/types_pb.js";
import { ReasoningEffort } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { DEFAULT_SETTINGS, settingsOf, toSessionSettings } from "./settings.js";

const stored = create(SessionSettingsSchema, {
  modelIds: ["m"],
  systemPrompt: "Be brief.",
  sampling: { temperature: 0.2, topP: 0.9, maxOutputTokens: 500, seed: "7", stop: ["END"] },
  defaults: { maxCycles: 3, allowedTools: { toolIds: ["clock"] } },
});

describe("chat settings", () => {
  it("come back as they were stored, byte for byte, when nothing is changed", () => {
    const same = toSessionSettings(settingsOf(stored), stored);
    expect(toBinary(SessionSettingsSchema, same)).toEqual(toBinary(SessionSettingsSchema, stored));
  });

  it.each([0.7, undefined])(
    "change the temperature to %s and leave the rest of the sampling",
    (temperature) => {
      const changed = toSessionSettings({ ...settingsOf(stored), temperature }, stored);
      const read = { ...changed.sampling };
      expect(read).toMatchObject({ topP: 0.9, maxOutputTokens: 500, seed: "7", stop: ["END"] });
      expect(read.temperature).toBe(temperature);
      expect(changed.defaults).toMatchObject({ maxCycles: 3 });
    },
  );

  it("make a new session with what was chosen, and nothing else", () => {
    const made = toSessionSettings({ ...DEFAULT_SETTINGS, reasoningEffort: ReasoningEffort.HIGH });
    const expected = create(SessionSettingsSchema, { reasoningEffort: ReasoningEffort.HIGH, defaults: {} });
    expect(toBinary(SessionSettingsSchema, made)).toEqual(toBinary(SessionSettingsSchema, expected));
  });
});
