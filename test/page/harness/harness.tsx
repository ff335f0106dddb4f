/**
 * The turn components in a page of their own, driven by tests and by `npm run bench -- page`: real viewer, real frames,
 * real components; only the packets are the test's.
 */
import { create, fromJson, type JsonValue } from "@bufbuild/protobuf";
import { createRoot } from "react-dom/client";
import { flushSync } from "react-dom";
import type { Packet } from "../../../gen/turnwire/packet/v1/packet_pb.js";
import { PacketSchema } from "../../../gen/turnwire/packet/v1/packet_pb.js";
import { FrameBatcher } from "../../../src/client/frames.js";
import { TurnViewer } from "../../../src/client/view.js";
import { applyPacket, emptyTurnState } from "../../../src/turn/fold.js";
import { Markdown } from "../../../src/web/turn/markdown/markdown.js";
import type { TurnActions } from "../../../src/web/turn/turn-actions.js";
import { TurnView } from "../../../src/web/turn/turn-view.js";
import "../../../src/web/style/tokens.css";
import "../../../src/web/style/base.css";

/** What a streamed answer came to. */
export interface StreamFigures {
  /** How often the view was made, and how long that and the drawing took at most, milliseconds. */
  readonly updates: number;
  readonly maxUpdateMs: number;
  readonly durationMs: number;
}

/** What is there at the end. */
export interface Texts {
  /** Text of the fold. */
  readonly foldText: string;
  /** Text that the page shows, and that it would show of the whole text at once. */
  readonly shownText: string;
  readonly expectedText: string;
}

const calls: [name: string, ...args: unknown[]][] = [];
const actions: TurnActions = {
  onOpenCitation: (document, number) => calls.push(["citation", number, document.title]),
  onOpenDocument: (document) => calls.push(["document", document.title]),
  onOpenFile: (fileId, name) => calls.push(["file", fileId, name]),
  onPickLane: (lane) => calls.push(["pick", lane.messageId]),
  onRetry: (lane) => calls.push(["retry", lane?.modelId]),
  onFollowUp: (text) => calls.push(["follow-up", text]),
};

const root = createRoot(document.getElementById("root")!);
let state = emptyTurnState();
let viewer = new TurnViewer();
let pickedMessageId: string | undefined;

function draw(fresh: readonly Packet[]): void {
  const view = viewer.update(state, fresh);
  root.render(<TurnView view={view} actions={actions} pickedMessageId={pickedMessageId} />);
}

/** Folds packets (a JSON list) on top of what is there and draws. */
function show(packets: string): void {
  const fresh = (JSON.parse(packets) as JsonValue[]).map((json) => fromJson(PacketSchema, json));
  for (const packet of fresh) applyPacket(state, packet);
  flushSync(() => draw(fresh));
}

function clear(): void {
  state = emptyTurnState();
  viewer = new TurnViewer();
  pickedMessageId = undefined;
  calls.length = 0;
  flushSync(() => root.render(null));
}

function pick(messageId: string): void {
  pickedMessageId = messageId;
  flushSync(() => draw([]));
}

/** The packets of a turn that answers with `text`, cut into `count` deltas. */
function answerPackets(text: string, count: number): Packet[] {
  const chars = Array.from(text);
  const cut = (i: number): string =>
    chars
      .slice(Math.floor((i * chars.length) / count), Math.floor(((i + 1) * chars.length) / count))
      .join("");
  const at = { turnIndex: 0, tabIndex: 0, modelIndex: 0 };
  const payloads: Parameters<typeof create<typeof PacketSchema>>[1][] = [
    { payload: { case: "turnStarted", value: { turnId: "turn-1", lanes: [{ modelId: "model" }] } } },
    { placement: at, payload: { case: "laneStarted", value: {} } },
    { placement: at, payload: { case: "agentResponseStart", value: {} } },
    ...Array.from({ length: count }, (_, i) => ({
      placement: at,
      payload: { case: "agentResponseDelta", value: { content: cut(i) } } as const,
    })),
    { placement: at, payload: { case: "agentResponseDone", value: { kind: 1 } } },
    { placement: at, payload: { case: "laneEnd", value: { outcome: 1 } } },
    { payload: { case: "overallStop", value: { outcome: 1 } } },
  ];
  return payloads.map((init, i) => create(PacketSchema, { ...init, seq: i + 1 }));
}

let streamed: { half: Promise<void>; goOn: () => void; done: Promise<StreamFigures> } | undefined;

/** Streams an answer: `count` packets at `perSecond`. At half time it waits for `resume`, so that the heap can be looked at. */
function startStream(text: string, count: number, perSecond: number): void {
  clear();
  const packets = answerPackets(text, count);
  let reachedHalf: () => void = () => undefined;
  const half = new Promise<void>((resolve) => (reachedHalf = resolve));
  let goOn: () => void = () => undefined;
  const resumed = new Promise<void>((resolve) => (goOn = resolve));
  const done = (async () => {
    await stream(packets.slice(0, packets.length >> 1), perSecond);
    reachedHalf();
    await resumed;
    return stream(packets.slice(packets.length >> 1), perSecond);
  })();
  streamed = { half, goOn: () => goOn(), done };
}

/** Feeds packets as a connection would: a few each few milliseconds, catching up after a pause. */
async function stream(packets: readonly Packet[], perSecond: number): Promise<StreamFigures> {
  const beganMs = performance.now();
  let updates = 0;
  let maxUpdateMs = 0;
  const batcher = new FrameBatcher<Packet>((fresh) => {
    const startMs = performance.now();
    flushSync(() => draw(fresh));
    updates++;
    maxUpdateMs = Math.max(maxUpdateMs, performance.now() - startMs);
  });
  let sent = 0;
  await new Promise<void>((resolve) => {
    const timer = setInterval(() => {
      const due = Math.min(packets.length, Math.floor(((performance.now() - beganMs) * perSecond) / 1_000));
      const fresh = packets.slice(sent, due);
      for (const packet of fresh) applyPacket(state, packet);
      batcher.push(fresh);
      sent = due;
      if (sent < packets.length) return;
      clearInterval(timer);
      resolve();
    }, 4);
  });
  batcher.flush();
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 300)));
  return { updates, maxUpdateMs, durationMs: performance.now() - beganMs };
}

function texts(text: string): Texts {
  const once = document.createElement("div");
  const onceRoot = createRoot(once);
  flushSync(() => onceRoot.render(<Markdown text={text} />));
  const expectedText = once.textContent ?? "";
  onceRoot.unmount();
  return {
    foldText: state.lanes[0]?.text ?? "",
    shownText: document.querySelector(".md")?.textContent ?? "",
    expectedText,
  };
}

const harness = {
  show,
  clear,
  pick,
  startStream,
  half: () => streamed!.half,
  resume: () => {
    streamed!.goOn();
    return streamed!.done;
  },
  texts,
  calls: () => calls,
};

/** What tests find on the window. */
export type Harness = typeof harness;

(window as unknown as { harness: Harness }).harness = harness;
