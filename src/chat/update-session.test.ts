import { create, fromBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { UpdateSessionRequestSchema } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { SessionSettingsSchema } from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { sessionChanges } from "./update-session.js";

const session = { sessionId: "s", title: "new", tags: ["a"], archived: true };

test.each<[string, object, object]>([
  ["a mask takes what it names, also what is empty", { title: "", tags: [] }, { title: "", tags: [] }],
  ["archived can be taken back", { archived: false }, { archived: false }],
])("%s", (_, fields, changes) => {
  const updateMask = { paths: Object.keys(fields) };
  const request = create(UpdateSessionRequestSchema, {
    session: { ...session, ...fields },
    updateMask,
  });
  expect(sessionChanges(request)).toEqual(changes);
});

test("without a mask all that is set", () => {
  expect(sessionChanges(create(UpdateSessionRequestSchema, { session }))).toEqual({
    title: "new",
    tags: ["a"],
    archived: true,
  });
});

test("settings are changed as a whole; named and not set they are the defaults", () => {
  const settings = { systemPrompt: "be brief", modelIds: ["m"] };
  const set = sessionChanges(create(UpdateSessionRequestSchema, { session: { ...session, settings } }));
  expect(fromBinary(SessionSettingsSchema, set.settings!)).toMatchObject(settings);
  const updateMask = { paths: ["settings"] };
  expect(sessionChanges(create(UpdateSessionRequestSchema, { session, updateMask }))).toEqual({
    settings: new Uint8Array(),
  });
});

test.each([["name"], ["settings.model_ids"], ["session.title"], [""]])("the path %j is none", (path) => {
  const request = create(UpdateSessionRequestSchema, { session, updateMask: { paths: [path] } });
  expect(() => sessionChanges(request)).toThrow(
    expect.objectContaining({ code: ErrorCode.INVALID_ARGUMENT }),
  );
});
