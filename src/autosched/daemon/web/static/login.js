// Exchanges a key for a session, and goes on to where the reader wanted to go.
import { at, say } from "./dom.js";
import { signIn } from "./session.js";

const words = new URLSearchParams(location.search);
const wanted = new URL(words.get("to") ?? "/", location.origin);
const showProblem = (why) => { at("problem").hidden = !why; say(at("problem"), why); };

showProblem(words.get("why") ?? "");
at("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  at("look").disabled = true;
  const refused = await signIn({ key: at("key").value.trim() }).catch(() => "The daemon does not answer; try again later.");
  at("look").disabled = false;
  if (refused) { showProblem(refused); return; }
  location.replace(wanted.origin === location.origin ? wanted.pathname + wanted.search : "/");
});
document.documentElement.dataset.painted = "yes";
