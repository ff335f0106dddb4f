/** Why something could not be fetched. `message` is fit for a model and its user. */
export class FetchFailure extends Error {
  override readonly name = "FetchFailure";
  readonly kind: FetchFailureKind;

  constructor(kind: FetchFailureKind, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }
}

export type FetchFailureKind =
  | "invalid_url"
  | "refused"
  | "unreachable"
  | "redirects"
  | "http_status"
  | "too_large"
  | "unreadable"
  | "encrypted"
  | "timeout"
  | "cancelled";
