// Who looks. A link that `autosched status` prints carries a token behind #sign-in=; at /login a key is typed. Both are
// exchanged for a session, which stays in the storage of this origin: cookies go to all ports of a machine, storage does not.

const NAME = "session", LINK = "#sign-in=";
let session = "";
try { session = localStorage.getItem(NAME) ?? ""; } catch { /* storage is off: it holds for this page only */ }

// Returns the reason for a refusal; empty after a success.
export async function signIn(shown) {
  const answer = await fetch("/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(shown) });
  if (!answer.ok) return answer.text();
  session = (await answer.json()).session;
  try { localStorage.setItem(NAME, session); } catch { /* storage is off */ }
  return "";
}

async function useLink() {
  if (!location.hash.startsWith(LINK)) return;
  const link = location.hash.slice(LINK.length);
  history.replaceState(null, "", location.pathname + location.search);
  const refused = await signIn({ link });
  if (refused && !session) toLogin(refused);
}

let leaving = false;

function toLogin(why = "") {
  if (leaving) return; // the first reason counts
  leaving = true;
  const words = new URLSearchParams({ to: location.pathname + location.search, ...(why && { why }) });
  location.replace(`/login?${words}`);
}

const signedIn = useLink().catch(() => {});

// Asks the daemon in the name of who looks.
export async function ask(path, options = {}) {
  await signedIn;
  const answer = await fetch(path, { ...options, headers: { ...options.headers, Authorization: `Bearer ${session}` } });
  if (answer.status === 401) toLogin();
  return answer;
}

// Asks twice where the connection breaks: browsers drop requests when the network of their machine changes.
export const request = (path, options) => ask(path, options).catch(() => ask(path, options));
