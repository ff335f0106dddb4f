/** What all framings have in common: bytes of a body in, the events they complete out. */

/**
 * Takes one event. `name`: what the framing calls it; "" = it has no name. `data`: the payload as text. `whole` is false for
 * what the end of the body cut off: only its data can tell whether it is whole.
 */
export type TakeEvent = (name: string, data: string, whole: boolean) => void;

/**
 * Takes the body of one response apart. The events do not depend on how the bytes were cut; memory is at most one event. A
 * parser whose framing is broken for good throws a TurnError.
 */
export interface EventParser {
  push(bytes: Uint8Array, take: TakeEvent): void;
  /** The body ended: hands out what is left. */
  end(take: TakeEvent): void;
  /** An event was larger than allowed: nothing comes out any more. */
  readonly overflowed: boolean;
}
