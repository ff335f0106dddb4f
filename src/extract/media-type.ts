/** Media types by name: which are text, which say nothing. Pure. */

const TEXT_APPLICATIONS =
  /^application\/(json|xml|yaml|x-yaml|toml|javascript|ecmascript|x-ndjson|xhtml\+xml|sql|markdown|graphql|x-sh|[\w.-]{1,80}\+(json|xml|yaml))$/;
const UNNAMED = /^((application|binary)\/octet-stream|application\/x-www-form-urlencoded)?$/;

/** Without parameters, lower case. */
export function mediaTypeOnly(contentType: string): string {
  return contentType.split(";")[0]!.trim().toLowerCase();
}

/** True for types that say nothing of what it is: senders give them when they do not know. */
export function isUnnamed(type: string): boolean {
  return UNNAMED.test(type);
}

export function isHtml(type: string): boolean {
  return type === "text/html" || type === "application/xhtml+xml";
}

export function isText(type: string): boolean {
  return type.startsWith("text/") || TEXT_APPLICATIONS.test(type);
}

/** True for bytes that begin as a page does; `start` as latin1. */
export function looksLikeHtml(start: string): boolean {
  return /^\s{0,100}<(!doctype html|html|head|body)[\s>]/i.test(start);
}
