import { expect, test } from "vitest";
import { encodeGrpcMessage, recodeGrpcMessage } from "./grpc-message.js";

test.each([
  ["text: too long, cut it (now)", "text: too long, cut it (now)"],
  ["100 %", "100 %25"],
  ["two\nlines\u007f", "two%0Alines%7F"],
  ["café 🕰", "caf%C3%A9 %F0%9F%95%B0"],
  ["", ""],
])("grpc-message - %j is sent as %j", (message, sent) => {
  expect(encodeGrpcMessage(message)).toBe(sent);
  expect(decodeURIComponent(sent)).toBe(message);
  expect(recodeGrpcMessage(encodeURIComponent(message))).toBe(sent);
});

test("grpc-message - what is not percent-encoded is left alone", () => {
  expect(recodeGrpcMessage("50 % off")).toBe("50 % off");
});
