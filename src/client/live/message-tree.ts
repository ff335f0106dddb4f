/**
 * The messages of a session as a tree, as far as they are known: what follows what, which branch is shown, and which
 * others there are. Pure data; knows nothing of views or of the network.
 */
import { create } from "@bufbuild/protobuf";
import { MessageRole, MessageSchema, type Message } from "../../../gen/turnwire/chat/v1/types_pb.js";
import type { TurnStarted } from "../../../gen/turnwire/packet/v1/control_pb.js";

/** One user message of a branch with the answers to it. */
export interface Exchange {
  readonly user: Message;
  /** The user message and its edited siblings, oldest first. */
  readonly userVersions: readonly string[];
  /** The answers of the turn that is shown, in the order of their lanes; empty = none yet. */
  readonly answers: readonly Message[];
  /** The answer that the branch goes on from. */
  readonly selectedId: string;
  /** The first answer of each turn that answered the user message, oldest turn first. */
  readonly answerVersions: readonly { readonly turnId: string; readonly messageId: string }[];
}

export class MessageTree {
  readonly #messages = new Map<string, Message>();
  readonly #children = new Map<string, string[]>();

  get size(): number {
    return this.#messages.size;
  }

  get(messageId: string): Message | undefined {
    return this.#messages.get(messageId);
  }

  /** Adds messages, or replaces what was known of them. A message without its answer does not replace one with it. */
  add(messages: readonly Message[]): void {
    const touched = new Set<string>();
    for (const message of messages) {
      touched.add(message.parentMessageId);
      const known = this.#messages.get(message.messageId);
      this.#messages.set(
        message.messageId,
        known?.answer && !message.answer ? { ...message, answer: known.answer } : message,
      );
      if (known && known.parentMessageId === message.parentMessageId) continue;
      const siblings = this.#children.get(message.parentMessageId) ?? [];
      siblings.push(message.messageId);
      this.#children.set(message.parentMessageId, siblings);
    }
    for (const parent of touched) this.#children.get(parent)?.sort((a, b) => this.#compare(a, b));
  }

  /** Adds the messages that a turn has begun: the user's, after `parentId`, and one per lane. Stored ones replace them. */
  addTurn(started: TurnStarted, parentId: string): void {
    const { turnId, sessionId, userMessageId, startedAt: createTime, input, lanes } = started;
    const base = { sessionId, turnId, createTime };
    const added = lanes.map(({ assistantMessageId, modelIndex }) =>
      create(MessageSchema, {
        ...base,
        messageId: assistantMessageId,
        parentMessageId: userMessageId,
        role: MessageRole.ASSISTANT,
        modelIndex,
      }),
    );
    if (!this.#messages.has(userMessageId)) {
      const role = MessageRole.USER;
      added.unshift(
        create(MessageSchema, { ...base, messageId: userMessageId, parentMessageId: parentId, role, input }),
      );
    }
    this.add(added.filter(({ messageId }) => !this.#messages.has(messageId)));
  }

  /** Messages whose answers are not all known: there are more siblings than were read. */
  withUnknownAnswers(leafId: string): string[] {
    return this.branch(leafId)
      .filter(({ answers }) =>
        answers.some(({ siblingMessageIds: ids }) => ids.some((id) => !this.#messages.has(id))),
      )
      .map(({ user }) => user.messageId);
  }

  /** The last message of the newest branch below a message. */
  leafBelow(messageId: string): string {
    let at = messageId;
    for (;;) {
      const children = this.#childrenOf(at);
      if (children.length === 0) return at;
      const newest = children.at(-1)!;
      // of several lanes the first is the one to go on from, unless the branch already goes on from another
      const lanes = children.filter((child) => child.turnId === newest.turnId);
      at = (lanes.find((lane) => this.#childrenOf(lane.messageId).length > 0) ?? lanes[0]!).messageId;
    }
  }

  /** The messages from the oldest that is known down to this one. */
  path(leafId: string): Message[] {
    const path: Message[] = [];
    for (let at = this.#messages.get(leafId); at; at = this.#messages.get(at.parentMessageId)) path.push(at);
    return path.reverse();
  }

  /** The branch that ends in a message. Stops where a parent is not known. */
  branch(leafId: string): Exchange[] {
    const path = this.path(leafId);
    return path.flatMap((message, i) =>
      message.role === MessageRole.USER ? [this.#exchange(message, path[i + 1])] : [],
    );
  }

  #exchange(user: Message, selected: Message | undefined): Exchange {
    const children = this.#childrenOf(user.messageId).filter(({ role }) => role === MessageRole.ASSISTANT);
    const turnIds = [...new Set(children.map(({ turnId }) => turnId))];
    const answers = selected ? children.filter(({ turnId }) => turnId === selected.turnId) : [];
    const siblings = this.#childrenOf(user.parentMessageId).filter(({ role }) => role === MessageRole.USER);
    return {
      user,
      // the service names all of them; those that came since are known from their turns
      userVersions: [...new Set([...user.siblingMessageIds, ...siblings.map(({ messageId }) => messageId)])],
      answers: answers.length > 0 || !selected ? answers : [selected],
      selectedId: selected?.messageId ?? "",
      answerVersions: turnIds.map((turnId) => ({
        turnId,
        messageId: children.find((child) => child.turnId === turnId)!.messageId,
      })),
    };
  }

  #childrenOf(messageId: string): Message[] {
    return (this.#children.get(messageId) ?? []).map((id) => this.#messages.get(id)!);
  }

  /** Oldest first; lanes of one turn in their order. */
  #compare(a: string, b: string): number {
    const [x, y] = [this.#messages.get(a)!, this.#messages.get(b)!];
    if (x.turnId === y.turnId) return (x.modelIndex ?? 0) - (y.modelIndex ?? 0);
    return millis(x) - millis(y) || (a < b ? -1 : 1);
  }
}

function millis({ createTime }: Message): number {
  return createTime ? Number(createTime.seconds) * 1000 + createTime.nanos / 1e6 : Number.POSITIVE_INFINITY;
}
