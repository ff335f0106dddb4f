/** How an answer was made, for those who want to know: model calls, tools, tokens, cost, and where its packets are. */
import { timestampDate, type Timestamp } from "@bufbuild/protobuf/wkt";
import { useEffect, useState, type ReactNode } from "react";
import type { CycleState, LaneState, TurnState } from "../../../gen/turnwire/chat/v1/turn_state_pb.js";
import { FinishReason, type Usage } from "../../../gen/turnwire/packet/v1/common_pb.js";
import { explainError, type Explanation } from "../../client/explain-error.js";
import { readTurnState } from "../../client/live/read-turn-state.js";
import { usePage } from "../app/page-context.js";
import { Dialog } from "../ui/dialog.js";
import { formatCost, formatCount } from "../ui/format.js";
import { ErrorNotice } from "../ui/notice.js";
import { Skeleton } from "../ui/skeleton.js";
import { useCopy } from "../ui/use-copy.js";

export interface AnswerDetailsProps {
  readonly turnId: string;
  /** The message of the lane that is looked at. */
  readonly messageId: string;
  readonly askedAt: Timestamp | undefined;
  readonly onClose: () => void;
}

export function AnswerDetails({ turnId, messageId, askedAt, onClose }: AnswerDetailsProps) {
  const { client } = usePage();
  const [state, setState] = useState<TurnState>();
  const [error, setError] = useState<Explanation>();
  useEffect(() => {
    const abort = new AbortController();
    readTurnState(client.api, turnId, abort.signal).then(setState, (thrown: unknown) => {
      if (!abort.signal.aborted) setError(explainError(thrown));
    });
    return () => abort.abort();
  }, [client, turnId]);
  const lane = state?.lanes.find(({ assistantMessageId }) => assistantMessageId === messageId);
  return (
    <Dialog title="Details of the answer" onClose={onClose}>
      {error && <ErrorNotice error={error} />}
      {!state && !error && <Skeleton lines={5} label="Reading the turn" />}
      {state && (
        <>
          <dl className="details">
            {lane && <LaneFacts lane={lane} />}
            {askedAt && <Fact name="Asked">{timestampDate(askedAt).toLocaleString()}</Fact>}
            <Fact name="Packets">{formatCount(state.seq)}</Fact>
            <Fact name="Turn">
              <code>{turnId}</code>
            </Fact>
          </dl>
          {lane && lane.cycles.length > 0 && <Cycles cycles={lane.cycles} />}
          <Command text={`npx turnwire replay ${turnId}`} />
        </>
      )}
    </Dialog>
  );
}

function LaneFacts({ lane }: { readonly lane: LaneState }) {
  const { modelId, displayName, usage, blocks } = lane;
  const calls = blocks.filter(({ block }) => block.case === "tool").length;
  return (
    <>
      <Fact name="Model">
        {displayName && displayName !== modelId ? `${displayName} (${modelId})` : modelId}
      </Fact>
      {usage && <Fact name="Tokens">{tokensText(usage)}</Fact>}
      {usage && usage.costMicros !== "0" && usage.costMicros !== "" && (
        <Fact name="Cost">{formatCost(usage.costMicros, usage.currency)}</Fact>
      )}
      {calls > 0 && <Fact name="Tool calls">{formatCount(calls)}</Fact>}
    </>
  );
}

function tokensText(usage: Usage): string {
  const { inputTokens, outputTokens, reasoningTokens, cacheReadTokens, estimated } = usage;
  const read = `${formatCount(inputTokens)} read${cacheReadTokens > 0 ? ` (${formatCount(cacheReadTokens)} from cache)` : ""}`;
  const written = `${formatCount(outputTokens)} written${reasoningTokens > 0 ? ` (${formatCount(reasoningTokens)} reasoning)` : ""}`;
  return `${read}, ${written}${estimated ? ", estimated" : ""}`;
}

function Fact({ name, children }: { readonly name: string; readonly children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Cycles({ cycles }: { readonly cycles: readonly CycleState[] }) {
  return (
    <div className="details-table" tabIndex={0} role="group" aria-label="Model calls">
      <table>
        <thead>
          <tr>
            <th scope="col">Model call</th>
            <th scope="col">From seq</th>
            <th scope="col">Read</th>
            <th scope="col">Written</th>
            <th scope="col">Ended</th>
          </tr>
        </thead>
        <tbody>
          {cycles.map(({ cycle, attempt, firstSeq, usage, finishReason, reset }) => (
            <tr key={`${cycle}-${attempt}-${firstSeq}`}>
              <td>
                {cycle}
                {attempt > 1 && `, attempt ${attempt}`}
              </td>
              <td>{firstSeq}</td>
              <td>{usage ? formatCount(usage.inputTokens) : ""}</td>
              <td>{usage ? formatCount(usage.outputTokens) : ""}</td>
              <td>{reset ? "taken back" : finishText(finishReason)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function finishText(reason: FinishReason): string {
  return reason === FinishReason.UNSPECIFIED
    ? ""
    : (FinishReason[reason] ?? "").toLowerCase().replaceAll("_", " ");
}

/** A command that shows more, with a button that copies it. */
function Command({ text }: { readonly text: string }) {
  const [outcome, copy] = useCopy();
  return (
    <div className="details-command">
      <code>{text}</code>
      <button type="button" className="button" aria-live="polite" onClick={() => copy(text)}>
        {outcome === "copied" ? "Copied" : outcome === "failed" ? "Copying is not allowed" : "Copy"}
      </button>
    </div>
  );
}
