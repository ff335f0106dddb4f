/** A page that is not read, with the reason in words that may be shown. */
export class UnreadablePage extends Error {
  override readonly name = "UnreadablePage";
  constructor(readonly reason: string) {
    super(reason);
  }
}
