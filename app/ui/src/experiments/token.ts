/** A participant's token: it comes in the link's fragment, which no server sees, and is erased from there at once. */
const nameOf = (sessionId: string) => `bensemble.token.${sessionId}`;

/** The one in the address, or the one this tab was given before; null where there is neither. */
export function takeToken(sessionId: string): string | null {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given !== null) {
    sessionStorage.setItem(nameOf(sessionId), given);
    history.replaceState(history.state, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(nameOf(sessionId));
}
