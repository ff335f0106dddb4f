/** The settings of a conversation: the session's own, or those that the next new one begins with. */
import { useCallback, useState } from "react";
import type { Session } from "../../../gen/turnwire/chat/v1/types_pb.js";
import type { Conversation } from "../../client/live/conversation.js";
import { usePage } from "../app/page-context.js";
import { readStored, store } from "../data/browser-storage.js";
import { DEFAULT_SETTINGS, settingsOf, toSessionSettings, type ChatSettings } from "../data/settings.js";

export function useChatSettings(
  conversation: Conversation | undefined,
  session: Session | undefined,
): readonly [ChatSettings, (settings: ChatSettings) => Promise<void>] {
  const { client, account } = usePage();
  const key = `turnwire.settings.${account.name}`;
  const [forNew, setForNew] = useState<ChatSettings>(() => ({
    ...DEFAULT_SETTINGS,
    ...readStored<Partial<ChatSettings>>(key, {}),
  }));
  const save = useCallback(
    async (settings: ChatSettings) => {
      if (!conversation) {
        setForNew(settings);
        // instructions belong to one conversation; the rest is a habit
        store(key, { ...settings, systemPrompt: "" });
        return;
      }
      await client.api.updateSession({
        session: {
          sessionId: conversation.sessionId,
          settings: toSessionSettings(settings, session?.settings),
        },
        updateMask: { paths: ["settings"] },
      });
      await conversation.reload();
    },
    [client, key, conversation, session],
  );
  return [conversation ? settingsOf(session?.settings) : forNew, save];
}
