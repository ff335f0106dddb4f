/** What a lane, or an agent inside a call, shows from top to bottom. */
import { memo, type ReactNode } from "react";
import type { GroupView, NoticeView, TextGroup } from "../../client/view.js";
import { Icon } from "../ui/icon.js";
import { Disclosure } from "./disclosure.js";
import { Guard } from "./guard.js";
import { Markdown } from "./markdown/markdown.js";
import { ReasoningBlock } from "./reasoning-block.js";
import { ToolGroup } from "./tool-group.js";

/** Draws groups in their order; those that did not change are left alone. */
export const GroupList = memo(function GroupList({
  groups,
}: {
  readonly groups: readonly GroupView[];
}): ReactNode {
  return groups.map((group) => (
    <Guard key={group.key} text={"text" in group ? group.text : ""}>
      <Group group={group} />
    </Guard>
  ));
});

function renderGroups(groups: readonly GroupView[]): ReactNode {
  return <GroupList groups={groups} />;
}

function Group({ group }: { readonly group: GroupView }): ReactNode {
  switch (group.kind) {
    case "reasoning":
      return <ReasoningBlock group={group} />;
    case "tools":
      return <ToolGroup group={group} renderNested={renderGroups} />;
    case "notice":
      return <Notice notice={group} />;
    case "plan":
      return (
        <Disclosure
          className="plan"
          openByDefault={group.open}
          summary={<span className="disclosure-title">Plan</span>}
        >
          {() => <Text group={group} />}
        </Disclosure>
      );
    default:
      return <Text group={group} />;
  }
}

const Text = memo(function Text({ group }: { readonly group: TextGroup }): ReactNode {
  return (
    <div className={`text is-${group.kind}`}>
      <Markdown text={group.text} open={group.open} />
    </div>
  );
});

/** A line beside the answer. */
export function Notice({ notice }: { readonly notice: NoticeView }): ReactNode {
  const icon = { info: "info", success: "check", warning: "warn", error: "warn" } as const;
  return (
    <p className={`notice is-${notice.level}`}>
      <Icon name={icon[notice.level]} />
      <span>{notice.text}</span>
    </p>
  );
}
