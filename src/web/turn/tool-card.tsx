/** One tool call: what it does, how it goes, what it found; all of it on demand. */
import { memo, type ReactNode } from "react";
import { callStatusWords, callTitle, type GroupView, type ToolCallView } from "../../client/view.js";
import { Disclosure } from "./disclosure.js";
import { Elapsed, toldDuration } from "./duration.js";
import { FileButtons, Output, prettyText, ToolBodyView } from "./tool-body-view.js";

/** Whether a call is still on its way. */
export function isRunning({ status }: ToolCallView): boolean {
  return status === "preparing" || status === "running";
}

/** Draws what an agent shows inside a call: groups again, one level down. */
export type RenderGroups = (groups: readonly GroupView[]) => ReactNode;

/** Draws one call. It is open while it runs, so that its progress can be seen. */
export const ToolCard = memo(function ToolCard(props: {
  readonly call: ToolCallView;
  readonly renderNested: RenderGroups;
}): ReactNode {
  const { call, renderNested } = props;
  return (
    <Disclosure
      className={`tool is-${call.status}`}
      openByDefault={isRunning(call)}
      summary={
        <>
          <StatusDot status={call.status} />
          <span className="disclosure-title">{callTitle(call)}</span>
          <span className="tool-outcome">{summaryOf(call)}</span>
          {isRunning(call) && <Elapsed sinceMs={call.openedAtMs} />}
        </>
      }
    >
      {() => <CallDetails call={call} renderNested={renderNested} />}
    </Disclosure>
  );
});

/** A dot for the eye; the words beside it say the same. */
export function StatusDot({ status }: { readonly status: ToolCallView["status"] }): ReactNode {
  return <span className={`dot is-${status}`} aria-hidden="true" />;
}

function summaryOf(call: ToolCallView): string {
  if (isRunning(call)) return call.status === "preparing" ? "getting ready" : "";
  if (call.mergedIntoCallId) return "ran together with another call";
  const { body } = call;
  const found =
    call.status === "ok" && body.kind === "search"
      ? `${body.documents.length} ${body.documents.length === 1 ? "result" : "results"}`
      : "";
  const time = toldDuration(call.durationMs);
  return [callStatusWords(call.status), found, time].filter((part) => part !== "").join(", ");
}

function CallDetails(props: { readonly call: ToolCallView; readonly renderNested: RenderGroups }): ReactNode {
  const { call, renderNested } = props;
  const { body, argumentsJson, resultText } = call;
  const isFamily = body.kind !== "plain" && body.kind !== "output";
  const failed = !isRunning(call) && call.status !== "ok";
  return (
    <>
      {call.message && <p className={failed ? "notice is-warning" : "hint"}>{call.message}</p>}
      {!isFamily && argumentsJson !== "" && argumentsJson !== "{}" && (
        <Output label="Asked for" text={prettyText(argumentsJson, "json")} />
      )}
      <ToolBodyView body={body} running={isRunning(call)} />
      {call.nested.length > 0 && renderNested(call.nested)}
      {resultText && (body.kind === "plain" || failed) && <Output label="Result" text={resultText} />}
      {call.resultFileId && <FileButtons files={[{ fileId: call.resultFileId, name: "The whole result" }]} />}
      <FileButtons files={call.files} />
    </>
  );
}
