/**
 * Whose browser this is at the moment. What is kept or shared between tabs is named after the account, so that one user's
 * messages are never sent, nor shown, as another's.
 */
import { readStored, store } from "./browser-storage.js";

export interface Account {
  /** The bearer token; "" = none. */
  readonly token: string;
  /** Names the token's user in keys, and cannot be turned back into the token. */
  readonly name: string;
}

const TOKEN_KEY = "turnwire.token";

/** The account that this browser is signed in with. */
export function readAccount(): Account {
  const token = readStored(TOKEN_KEY, "");
  return { token, name: nameOf(token) };
}

/** Signs in with a token, or out with "". All tabs begin anew: nothing that they hold outlives its user. */
export function signIn(token: string): void {
  store(TOKEN_KEY, token || undefined);
  restart(token);
}

/** Begins anew when another tab has signed in or out. */
export function followAccount({ token }: Account): void {
  window.addEventListener("storage", ({ key }) => {
    if (key !== TOKEN_KEY && key !== null) return; // null: everything was cleared
    const now = readStored(TOKEN_KEY, "");
    if (now !== token) restart(now);
  });
}

function restart(token: string): void {
  if (!token) window.location.hash = ""; // whoever signs in next begins at the start
  window.location.reload();
}

/** FNV-1a, 32 bits: enough to tell the users of one browser apart, too little to say what the token was. */
function nameOf(token: string): string {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(token)) hash = Math.imul(hash ^ byte, 0x01000193);
  return (hash >>> 0).toString(36);
}
