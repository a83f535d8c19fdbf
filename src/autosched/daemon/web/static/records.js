// What the record store knows: a search for workloads, and all about the one that the address names.
import { Curves } from "./charts.js";
import { at, make, say, themeButton } from "./dom.js";
import { duration, latency } from "./format.js";
import { request } from "./session.js";

const WORDS = ["operator", "network", "device", "backend"];
const HOW = { compared: "side by side", searched: "alone", bound: "disturbed", unknown: "disturbed", wrong: "wrong" };
const history = new Curves(at("history"), { none: "Nothing is known of when it was measured." });
let asked = 0, due = 0;

themeButton(() => history.recolour());
for (const [name, value] of new URLSearchParams(location.search)) if (WORDS.includes(name)) at(name).value = value;
at("search").addEventListener("submit", (event) => { event.preventDefault(); search(); });
at("search").addEventListener("input", () => { clearTimeout(due); due = setTimeout(search, 250); });
addEventListener("hashchange", show);

const ago = (then) => (then ? `${duration(Date.now() / 1000 - then)} ago` : "–");
const interval = (bounds) => (bounds ? `${latency(bounds[0])} to ${latency(bounds[1])}` : "–");

async function answer(path) {
  let body = null;
  try {
    const response = await request(path);
    body = await response.json();
    if (response.ok) { at("problem").replaceChildren(); return body; }
  } catch { /* without a connection */ }
  at("problem").replaceChildren(make("p", "notice bad", body?.error ?? "The daemon does not answer; try again later."));
  return null;
}

async function search() {
  const number = ++asked;
  const words = new URLSearchParams(WORDS.map((name) => [name, at(name).value.trim()]).filter(([, text]) => text));
  window.history.replaceState(null, "", `/records${words.size ? `?${words}` : ""}${location.hash}`);
  const found = await answer(`/api/records?${words}`);
  if (number !== asked) return; // a later search is under way
  const rows = found?.workloads ?? [];
  const many = new Set(rows.map((row) => row.workload)).size;
  say(at("count"), found ? `${many}${found.more ? " and more" : ""} ${many === 1 ? "operator" : "operators"}` : "");
  at("workloads").tBodies[0].replaceChildren(...rows.map(workloadRow));
  if (found && !rows.length) at("problem").replaceChildren(make("p", "notice", words.size ? "Nothing is known of that." : "Nothing is known yet: what jobs measure appears here."));
  document.documentElement.dataset.painted = "yes";
}

function workloadRow(row) {
  const link = make("a", "", row.shape || row.name || row.workload);
  link.href = `#${encodeURIComponent(row.workload)}`;
  const name = make("td", "name", "", link);
  name.title = `${row.name}, ${row.workload}`;
  const best = row.best?.best_s ?? null;
  const speed = best && row.flops ? (row.flops / best / 1e9).toFixed(1) : "–";
  const tried = row.failed ? `${row.tried}, ${row.failed} failed` : String(row.tried);
  return make("tr", "", "", name, num(latency(best)), num(speed, "wide"), num(tried), make("td", "wide", row.device || "not known"),
    make("td", "wide", row.backend), make("td", "grow", "", ...(row.best ? foundBy(row.best) : ["all failed"])), num(ago(row.measured_at), "wide"));
}

const num = (text, where = "") => make("td", `num ${where}`, text);

function foundBy(one) {
  const words = `${one.job} ${one.network || one.name}`;
  if (one.imported) return [`imported: ${one.network || one.host || words}`];
  if (!one.own) return [`job ${words}${one.host ? ` of ${one.host}` : ""}`];
  const link = make("a", "", `job ${words}`);
  link.href = `/jobs/${one.job}`;
  return [link];
}

async function show() {
  const name = decodeURIComponent(location.hash.slice(1));
  if (!name) { at("about").hidden = true; return; }
  const found = await answer(`/api/records/${encodeURIComponent(name)}`);
  at("about").hidden = !found;
  if (!found) return;
  const { workload, fastest, nearest } = found;
  say(at("about-title"), workload.shape || workload.name || workload.hash);
  const facts = [["Workload", workload.hash, workload.name], ["Best", latency(fastest[0]?.best_s), fastest.length ? fastest[0].device : "all schedules failed"],
    ["Work", `${(workload.flops / 1e6).toFixed(1)} M`, "operations of one call"]];
  at("about-facts").replaceChildren(...facts.map(([title, value, more]) => make("div", "", "", make("dt", "", title), make("dd", "", value, make("small", "", more)))));
  const devices = Object.entries(found.history), now = Date.now() / 1000;
  const began = Math.min(...devices.flatMap(([, points]) => points.map((point) => point[0])));
  history.show(devices.map(([device, points]) => ({ name: device, points: [...points, [now, points.at(-1)[1]]].map(([when, best]) => [when - began, best]) })), "time");
  at("fastest").tBodies[0].replaceChildren(...fastest.map((one) => make("tr", "", "",
    make("td", "name", one.schedule), num(latency(one.best_s)), num(interval(one.interval_s), "wide"), make("td", "", one.imported ? "elsewhere" : HOW[one.standing] ?? one.standing),
    make("td", "grow", "", ...foundBy(one)), make("td", "wide", one.owner), make("td", "wide", one.device || "not known"), make("td", "wide", one.backend), num(ago(one.measured_at)))));
  at("nearest").replaceChildren(...nearest.map((one) => {
    const link = make("a", "", one.shape || one.name);
    link.href = `#${encodeURIComponent(one.hash)}`;
    return make("li", "", "", link);
  }));
  at("about-title").focus({ preventScroll: true });
  at("about").scrollIntoView({ block: "nearest" });
}

search();
show();
