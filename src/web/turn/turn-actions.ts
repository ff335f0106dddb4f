/** What a person can do with what a turn shows. The page provides it; a missing action has no button. */
import { createContext, useContext } from "react";
import type { Document } from "../../../gen/turnwire/packet/v1/common_pb.js";
import type { CitationMap, LaneView } from "../../client/view.js";

/** The page's answers to what is clicked. Keep the object's identity: everything below depends on it. */
export interface TurnActions {
  /** A numbered source was chosen, in the text or in the list below it. */
  readonly onOpenCitation?: (document: Document, number: number) => void;
  /** A document was chosen that has no number: a search hit, a page that was read. */
  readonly onOpenDocument?: (document: Document) => void;
  /** A stored file was chosen: the rest of a cut result, a file that a tool made. */
  readonly onOpenFile?: (fileId: string, name: string) => void;
  /** This lane's answer is the one to go on from. */
  readonly onPickLane?: (lane: LaneView) => void;
  /** Try again after an end that allows it. */
  readonly onRetry?: (lane: LaneView | undefined) => void;
  /** Choose what answers instead, after an end that another model may spare. */
  readonly onChooseModel?: () => void;
  /** One of the suggested questions was chosen. */
  readonly onFollowUp?: (text: string) => void;
}

export const TurnActionsContext = createContext<TurnActions>({});

/** The page's actions. */
export function useTurnActions(): TurnActions {
  return useContext(TurnActionsContext);
}

/** The documents behind the numbers of the text around. */
export const CitationsContext = createContext<CitationMap>(new Map());
