/** What an UpdateSession changes: the fields that its mask names, else those that are set. Pure. */
import { create, toBinary } from "@bufbuild/protobuf";
import type { UpdateSessionRequest } from "../../gen/turnwire/chat/v1/chat_service_pb.js";
import { SessionSettingsSchema, type Session } from "../../gen/turnwire/chat/v1/types_pb.js";
import { ErrorCode } from "../../gen/turnwire/packet/v1/common_pb.js";
import { TurnError } from "../lib/errors.js";
import type { SessionChanges } from "../store/store.js";
import { notBuilt, refuseUnbuiltSettings } from "./unbuilt.js";

/** Throws INVALID_ARGUMENT for a path that is none, or for no path at all. */
export function sessionChanges({ session, updateMask }: UpdateSessionRequest): SessionChanges {
  const paths = updateMask ? updateMask.paths : setPaths(session!);
  if (paths.length === 0)
    throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
      message: "nothing to change: name fields in update_mask, or set them",
      details: { field: "update_mask" },
    });
  return Object.assign({}, ...paths.map((path) => change(session!, path))) as SessionChanges;
}

function change(session: Session, path: string): SessionChanges {
  switch (path) {
    case "title":
      return { title: session.title };
    case "tags":
      return { tags: session.tags };
    case "archived":
      return { archived: session.archived };
    case "settings": {
      const settings = session.settings ?? create(SessionSettingsSchema);
      refuseUnbuiltSettings(settings, "session.settings");
      return { settings: toBinary(SessionSettingsSchema, settings) };
    }
    case "project_id":
      throw notBuilt("session.project_id");
    default:
      throw new TurnError(ErrorCode.INVALID_ARGUMENT, {
        message: `update_mask names "${path.slice(0, 64)}": it may name title, tags, settings and archived`,
        details: { field: "update_mask" },
      });
  }
}

function setPaths(session: Session): string[] {
  return [
    ...(session.title === "" ? [] : ["title"]),
    ...(session.tags.length === 0 ? [] : ["tags"]),
    ...(session.settings ? ["settings"] : []),
    ...(session.projectId === "" ? [] : ["project_id"]),
    ...(session.archived ? ["archived"] : []),
  ];
}
