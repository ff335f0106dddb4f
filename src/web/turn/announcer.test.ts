import { describe, expect, it } from "vitest";
import type { EndView, GroupView, StatusView, TurnView } from "../../client/view.js";
import { Announcer } from "./announcer.js";

interface Shown {
  readonly text: string;
  readonly open?: boolean;
  readonly status?: StatusView;
  readonly end?: EndView;
}

function view(progress: TurnView["progress"], ...lanes: readonly Shown[]): TurnView {
  const shown = lanes.map(({ text, open = true, status, end }, i) => ({
    key: `lane-${i}`,
    modelName: `model ${i}`,
    groups: [{ kind: "answer", key: "text-1", text, open } as GroupView],
    status,
    end,
  }));
  return { progress, lanes: shown } as unknown as TurnView;
}

describe("Announcer", () => {
  it("tells whole sentences, each once", () => {
    const announcer = new Announcer();
    expect(announcer.next(view("running", { text: "It will" }))).toBe("");
    expect(announcer.next(view("running", { text: "It will rain. Perhaps it" }))).toBe("It will rain.");
    expect(announcer.next(view("running", { text: "It will rain. Perhaps it sno" }))).toBe("");
    expect(announcer.next(view("completed", { text: "It will rain. Perhaps it snows", open: false }))).toBe(
      "Perhaps it snows The answer is complete.",
    );
    expect(announcer.next(view("completed", { text: "It will rain. Perhaps it snows", open: false }))).toBe(
      "",
    );
  });

  it("leaves out the signs of Markdown and addresses", () => {
    const text = "# Rain\n\n- **Much** of it [[1]](https://a.example/x), see [this](https://b.example/).\n";
    expect(new Announcer().next(view("running", { text }))).toBe("Rain Much of it , see this.");
  });

  it("tells what goes on when it changes", () => {
    const announcer = new Announcer();
    const thinking: StatusView = { kind: "reasoning", text: "Thinking" };
    const searching: StatusView = { kind: "tool", text: "Searching documents" };
    expect(announcer.next(view("running", { text: "", status: thinking }))).toBe("Thinking.");
    expect(announcer.next(view("running", { text: "", status: thinking }))).toBe("");
    expect(announcer.next(view("running", { text: "", status: searching }))).toBe("Searching documents.");
  });

  it("names the model where there are several, and tells a failure with what to do", () => {
    const announcer = new Announcer();
    const end: EndView = {
      progress: "error",
      text: "The provider failed.",
      advice: "Try again.",
      retryable: true,
      retryAfterMs: 0,
      isForOtherModel: false,
    };
    expect(announcer.next(view("running", { text: "One. " }, { text: "Two. " }))).toBe(
      "model 0: One. model 1: Two.",
    );
    expect(announcer.next(view("error", { text: "One. ", end }, { text: "Two. ", end }))).toBe(
      "The provider failed. Try again.",
    );
  });

  it("does not read out what was there before", () => {
    const announcer = new Announcer();
    announcer.skip(view("running", { text: "Old words. " }));
    expect(announcer.next(view("running", { text: "Old words. New words. " }))).toBe("New words.");
    const stored = new Announcer();
    stored.skip(view("completed", { text: "All of it.", open: false }));
    expect(stored.next(view("completed", { text: "All of it.", open: false }))).toBe("");
  });
});
