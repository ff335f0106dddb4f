import { useState } from "react";
import { signIn } from "../data/account.js";
import { Icon } from "../ui/icon.js";

/** Asks for a bearer token, when the server wants one. */
export function SignIn({ isRefused }: { readonly isRefused: boolean }) {
  const [token, setToken] = useState("");
  return (
    <main className="sign-in">
      <form
        className="sign-in-box"
        onSubmit={(event) => {
          event.preventDefault();
          if (token.trim()) signIn(token.trim());
        }}
      >
        <img src="/icon.svg" alt="" width={40} height={40} />
        <h1>Sign in to Turnwire</h1>
        <p>
          This server asks for a token. Whoever runs it can give you one; it stays in this browser until you
          sign out.
        </p>
        {isRefused && (
          <p className="notice bad" role="alert">
            <Icon name="lock" />
            <span>The server did not accept the token. Check it and try again.</span>
          </p>
        )}
        <label>
          <span className="setting-name">Token</span>
          <input
            className="field"
            type="password"
            autoComplete="current-password"
            autoFocus
            value={token}
            onChange={(event) => setToken(event.target.value)}
          />
        </label>
        <button type="submit" className="button primary" disabled={!token.trim()}>
          Sign in
        </button>
      </form>
    </main>
  );
}
