import { describe, expect, it, vi } from "vitest";
import { deferred, type Deferred } from "../../lib/signals.js";
import { PagedList } from "./paged-list.js";

interface Item {
  readonly id: string;
  readonly ms: number;
  readonly text: string;
}
interface Page {
  readonly items: readonly Item[];
  readonly nextPageToken: string;
}

const item = (ms: number, text = ""): Item => ({ id: `i${ms}`, ms, text });
const page = (times: readonly number[], nextPageToken = ""): Page => ({
  items: times.map((ms) => item(ms)),
  nextPageToken,
});

function setUp() {
  const reads: { readonly token: string; readonly reply: Deferred<Page> }[] = [];
  const list = new PagedList<Item>({
    fetch: (token) => {
      const reply = deferred<Page>();
      reads.push({ token, reply });
      return reply.promise;
    },
    idOf: ({ id }) => id,
    timeOf: ({ ms }) => ms,
  });
  /** Answers the read with that number, once it is asked. */
  const answer = async (index: number, reply: Page): Promise<void> => {
    await vi.waitFor(() => expect(reads.length).toBeGreaterThan(index));
    reads[index]!.reply.resolve(reply);
  };
  const times = () => list.items.map(({ ms }) => ms);
  return { list, reads, answer, times };
}

describe("paged list", () => {
  it("L1 keeps what an event has brought or removed while an older page was on its way", async () => {
    const { list, answer } = setUp();
    const reading = list.reload();
    list.put(item(9, "new"));
    list.put(item(5, "renamed"));
    list.remove("i4");
    await answer(0, page([5, 4, 3]));
    await reading;
    expect(list.items.map(({ ms, text }) => `${ms}${text}`)).toEqual(["9new", "5renamed", "3"]);
    const again = list.reload();
    await answer(1, page([9, 5, 4, 3])); // no event meanwhile: now the page counts
    await again;
    expect(list.items.map(({ ms, text }) => `${ms}${text}`)).toEqual(["9", "5", "3"]);
  });

  it("L2 keeps the older pages, and where to read on, when the first is read anew", async () => {
    const { list, reads, answer, times } = setUp();
    await Promise.all([list.reload(), answer(0, page([9, 8], "a"))]);
    await Promise.all([list.loadMore(), answer(1, page([7, 6], "b"))]);
    await Promise.all([list.reload(), answer(2, page([10, 9], "c"))]);
    expect(times()).toEqual([10, 9, 8, 7, 6]);
    await Promise.all([list.loadMore(), answer(3, page([5]))]);
    expect(reads.map(({ token }) => token)).toEqual(["", "a", "", "b"]);
    expect(list.hasMore).toBe(false);
    await Promise.all([list.reload(), answer(4, page([10, 9], "c"))]);
    expect(list.hasMore).toBe(false);
  });

  it("L2 begins anew when more has come than a page holds: a list with a hole would hide it", async () => {
    const { list, answer, times } = setUp();
    await Promise.all([list.reload(), answer(0, page([9, 8], "a"))]);
    await Promise.all([list.reload(), answer(1, page([20, 19], "z"))]);
    expect(times()).toEqual([20, 19]);
    await Promise.all([list.loadMore(), answer(2, page([18, 9]))]);
    expect(times()).toEqual([20, 19, 18, 9]);
  });

  it("L3 drops what was deleted elsewhere, on the first page and on a last one", async () => {
    const { list, answer, times } = setUp();
    await Promise.all([list.reload(), answer(0, page([9, 8, 7], "a"))]);
    await Promise.all([list.loadMore(), answer(1, page([6]))]);
    await Promise.all([list.reload(), answer(2, page([9, 7], "a"))]);
    expect(times()).toEqual([9, 7, 6]);
    await Promise.all([list.reload(), answer(3, page([9]))]);
    expect(times()).toEqual([9]);
  });

  it("L4 reads once more for those who asked while it was reading", async () => {
    const { list, reads, answer, times } = setUp();
    const all = [list.reload(), list.reload(), list.reload()];
    await answer(0, page([1]));
    await answer(1, page([2, 1]));
    await Promise.all(all);
    expect(reads.length).toBe(2);
    expect(times()).toEqual([2, 1]);
  });
});
