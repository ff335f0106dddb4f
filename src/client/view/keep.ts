/** Structural sharing: what says the same stays the same object. */

/** `previous` if it has the same fields with identical values, else `next`. */
export function keep<T extends object>(previous: T | undefined, next: T): T {
  if (previous === undefined) return next;
  const keys = Object.keys(next) as (keyof T)[];
  if (keys.length !== Object.keys(previous).length) return next;
  return keys.every((key) => Object.is(previous[key], next[key])) ? previous : next;
}

/** `previous` if it has the same elements in the same order, else `next`. */
export function keepList<T>(previous: readonly T[] | undefined, next: readonly T[]): readonly T[] {
  if (previous === undefined || previous.length !== next.length) return next;
  return next.every((element, i) => Object.is(element, previous[i])) ? previous : next;
}

/** A value made from a source that may be changed in place: made anew only when the source's mark changes. */
export class Derived<S, T> {
  readonly #make: (source: S) => T;
  #mark: readonly unknown[] | undefined;
  #value: T | undefined;

  constructor(make: (source: S) => T) {
    this.#make = make;
  }

  /** The value for a source; `mark` tells its versions apart. */
  get(source: S, ...mark: unknown[]): T {
    const known = this.#mark;
    if (known?.length !== mark.length || !mark.every((part, i) => Object.is(part, known[i]))) {
      this.#mark = mark;
      this.#value = this.#make(source);
    }
    return this.#value as T;
  }
}
