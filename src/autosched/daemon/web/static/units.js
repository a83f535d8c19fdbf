// One card for each lane and device: what it does, whether its measurements can be trusted, and how to take it out.
import { at, make, post, say } from "./dom.js";
import { lab, now } from "./feed.js";
import { duration, percent } from "./format.js";

const cards = new Map();

export function drawUnits() {
  for (const unit of lab.units.values()) {
    let card = cards.get(unit.unit);
    if (!card) { card = make_card(unit); cards.set(unit.unit, card); at("units").append(card); }
    write(card, unit);
  }
  for (const [name, card] of cards) if (!lab.units.has(name)) { card.remove(); cards.delete(name); }
}

function make_card(unit) {
  const button = make("button", "", "Drain");
  button.type = "button";
  button.addEventListener("click", () => act(unit.unit));
  return make("article", "card", "", make("h3", "", "", make("span", "", unit.unit), make("span")), make("p"), make("p"), make("p"), make("div", "actions", "", button));
}

function write(card, unit) {
  const [head, doing, health, drained, actions] = card.children;
  const state = head.lastChild;
  say(state, unit.drifting ? "drifting" : unit.state);
  state.className = unit.drifting || unit.state === "stopping" ? "warn" : unit.state === "busy" ? "good" : "dim";
  const cores = unit.cores.length ? `core${unit.cores.length > 1 ? "s" : ""} ${unit.cores.join(", ")}` : "no cores";
  const held = unit.job === undefined ? "" : `, ${unit.stage} of job ${unit.job} for ${duration(Math.max(0, now() - unit.since))}`;
  say(doing, `${unit.pools.join(", ")}, ${cores}${held}`);
  const noise = unit.noise ? `noise ${percent(unit.noise[0])} core, ${percent(unit.noise[1])} memory` : "";
  say(health, unit.health ?? noise);
  health.className = unit.drifting ? "warn" : "";
  health.hidden = !unit.health && !noise;
  drained.hidden = !unit.drained;
  drained.className = "warn";
  say(drained, unit.drained ? `drained: ${unit.drained}` : "");
  actions.hidden = lab.role !== "operator";
  const does = unit.drained ? "Undrain" : "Drain";
  say(actions.firstChild, does);
  actions.firstChild.setAttribute("aria-label", `${does}: ${unit.unit}`);
}

async function act(name) {
  const unit = lab.units.get(name);
  if (unit.drained) { await post("undrain", { unit: name }); return; }
  const reason = prompt(`Why is ${name} drained? Its running steps continue.`);
  if (reason) await post("drain", { unit: name, reason });
}
