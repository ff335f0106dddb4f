/**
 * A list that is read page by page, newest first, and changed by events meanwhile. Owns the items that are known.
 *
 * L1 what was put or removed while a page was being read is newer than that page. L2 reading the first page anew keeps the
 * older pages, as long as it joins them. L3 what a page should hold and does not is gone; what was removed never comes back.
 * L4 one read at a time, and one more if somebody asked meanwhile.
 */
import { Slots } from "../../lib/slots.js";

export interface PagedListOptions<T> {
  readonly fetch: (
    pageToken: string,
  ) => Promise<{ readonly items: readonly T[]; readonly nextPageToken: string }>;
  readonly idOf: (item: T) => string;
  /** What the service sorts by, milliseconds. */
  readonly timeOf: (item: T) => number;
  /** What becomes of a known item when another version of it arrives; default: the other one. */
  readonly merge?: (known: T, next: T) => T;
}

export class PagedList<T> {
  readonly #options: PagedListOptions<T>;
  readonly #items = new Map<string, T>();
  /** Ids that a page has brought. */
  readonly #listed = new Set<string>();
  readonly #changed = new Set<string>();
  readonly #removed = new Set<string>();
  readonly #one = new Slots(1);
  #nextPageToken = "";
  #reading: Promise<void> | undefined;
  #again = false;

  constructor(options: PagedListOptions<T>) {
    this.#options = options;
  }

  get hasMore(): boolean {
    return this.#nextPageToken !== "";
  }

  get size(): number {
    return this.#items.size;
  }

  /** Newest first. */
  get items(): T[] {
    const { timeOf } = this.#options;
    return [...this.#items.values()].sort((a, b) => timeOf(b) - timeOf(a));
  }

  get(id: string): T | undefined {
    return this.#items.get(id);
  }

  put(item: T): void {
    this.#changed.add(this.#options.idOf(item));
    this.#set(item);
  }

  remove(id: string): void {
    this.#removed.add(id);
    this.#items.delete(id);
  }

  /** Reads the first page anew. */
  reload(): Promise<void> {
    this.#again = true;
    this.#reading ??= this.#readFirst().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  async loadMore(): Promise<void> {
    await this.#one.run(async () => {
      if (!this.#nextPageToken) return;
      this.#changed.clear();
      const { items, nextPageToken } = await this.#options.fetch(this.#nextPageToken);
      this.#take(items);
      this.#nextPageToken = nextPageToken;
    });
  }

  async #readFirst(): Promise<void> {
    while (this.#again) {
      this.#again = false;
      await this.#one.run(async () => {
        this.#changed.clear();
        const { items, nextPageToken } = await this.#options.fetch("");
        const joins = items.some((item) => this.#listed.has(this.#options.idOf(item)));
        this.#forget(items, joins && nextPageToken !== "");
        if (!joins || nextPageToken === "") this.#nextPageToken = nextPageToken;
        this.#take(items);
      });
    }
  }

  /** Drops what the first page shows to be gone; and, unless `keepOlder`, all that is below it. */
  #forget(page: readonly T[], keepOlder: boolean): void {
    const { idOf, timeOf } = this.#options;
    const present = new Set(page.map(idOf));
    const oldestMs = keepOlder ? Math.min(...page.map(timeOf)) : Number.NEGATIVE_INFINITY;
    for (const [id, item] of this.#items)
      if (timeOf(item) > oldestMs && !present.has(id) && !this.#changed.has(id)) this.#items.delete(id);
    if (!keepOlder) this.#listed.clear();
  }

  #take(page: readonly T[]): void {
    for (const item of page) {
      const id = this.#options.idOf(item);
      this.#listed.add(id);
      if (!this.#changed.has(id)) this.#set(item);
    }
  }

  #set(item: T): void {
    const { idOf, merge = (_known, next) => next } = this.#options;
    const id = idOf(item);
    if (this.#removed.has(id)) return;
    const known = this.#items.get(id);
    this.#items.set(id, known === undefined ? item : merge(known, item));
  }
}
