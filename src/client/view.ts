/** The view model: what a user interface shows of a turn, and how it follows one. */
export { TurnViewer, viewOfTurn } from "./view/turn-viewer.js";
export { storedLaneView } from "./view/lane-view.js";
export { callStatusWords, callTitle } from "./view/call-view.js";
export type {
  AgentBody,
  CodeBody,
  FileBody,
  ImagesBody,
  MemoryBody,
  OutputBody,
  OutputPart,
  PagesBody,
  SearchBody,
  ToolBody,
} from "./view/tool-body.js";
export type {
  CallStatus,
  CitationMap,
  ClientCallView,
  EndView,
  GroupView,
  LaneView,
  NoticeView,
  Progress,
  StatusView,
  TextGroup,
  ToolCallView,
  ToolGroup,
  TurnView,
} from "./view/view-types.js";
