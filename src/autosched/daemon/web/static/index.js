// The landing page: what runs, what waits and why, and how fast the networks are getting.
import { Curves } from "./charts.js";
import { at, choice, make, say, themeButton } from "./dom.js";
import { follow, lab } from "./feed.js";
import { bytes, clock, duration, percent } from "./format.js";
import { Gantt } from "./gantt.js";
import { Jobs } from "./jobs.js";
import { drawUnits } from "./units.js";

const gantt = new Gantt(), jobs = new Jobs();
const curve = new Curves(at("curve"), { y: percent });
let axis = "time", told = 0;

choice(at("window"), [[60, "1 min"], [300, "5 min"], [1800, "30 min"], [7200, "2 h"]], 300, (seconds) => { gantt.seconds = seconds; gantt.draw(); });
choice(at("jobs-which"), [["active", "Active"], ["ended", "Ended"], ["all", "All"]], "active", (which) => { jobs.which = which; jobs.draw(); });
choice(at("axis"), [["time", "Time"], ["trials", "Trials"]], "time", (chosen) => { axis = chosen; drawCurve(); });
at("pause").addEventListener("click", (event) => {
  const paused = gantt.paused === null;
  event.target.setAttribute("aria-pressed", String(paused));
  gantt.pause(paused);
});
themeButton(() => { gantt.draw(); curve.recolour(); });

function drawHead() {
  const head = lab.head;
  if (!head) return;
  const waiting = Object.values(head.queues).reduce((sum, each) => sum + each, 0);
  const busy = [...lab.units.values()].filter((unit) => unit.state === "busy").length;
  const facts = [["jobs", `${head.active} active`], ["tasks waiting", waiting], ["units busy", `${busy} of ${lab.units.size}`],
    ["policy", `${head.policy}, ${head.goal}${head.rule ? `, ${head.rule}` : ""}`], ["up", duration(head.uptime_s)]];
  at("facts").replaceChildren(...facts.map(([name, value]) => make("span", "", `${name} `, make("b", "", String(value)))));
  const queues = Object.entries(head.queues).map(([pool, length]) => `${pool} ${length}`).join(", ");
  const estimates = head.typical === null ? "" : `; half of the estimates are within a factor of ${head.typical}`;
  say(at("foot"), `autosched ${head.version}, ${bytes(head.rss_bytes)} of memory; waiting: ${queues}${estimates}${lab.missed ? `; ${lab.missed} steps came too fast to be shown` : ""}${lab.missedIdle ? `; ${lab.missedIdle} idle spells, too` : ""}`);
  const active = head.active > 0 || head.jobs > 0;
  at("empty").hidden = active;
  for (const panel of document.querySelectorAll(".of-jobs")) panel.hidden = !active;
  const warnings = at("warnings");
  if (warnings.dataset.of !== head.warnings.join("\n")) {
    warnings.dataset.of = head.warnings.join("\n");
    warnings.replaceChildren(...head.warnings.map((text) => make("p", "panel notice", text)));
  }
  document.title = head.active ? `autosched: ${head.active} active` : "autosched";
}

function drawCurve() {
  const series = [];
  for (const [job, points] of [...lab.curves].sort((a, b) => b[1].at(-1)?.[0] - a[1].at(-1)?.[0])) {
    const row = lab.jobs.get(job);
    if (!row || !points.length || row.ended_at) continue;
    const first = row.first_s ?? points[0][2];
    series.push({ name: `${job} ${row.name}`, points: points.map(([when, trials, latency]) => [axis === "trials" ? trials : when - row.submitted_at, latency / first]) });
    if (series.length === 8) break;
  }
  series.sort((a, b) => parseInt(a.name) - parseInt(b.name));
  curve.none = lab.head?.active ? "No latency yet: this fills with the first valid trials." : "No job is active. The pages of ended ones have their curves.";
  curve.show(series, axis);
}

function drawTold() {
  if (!lab.told.length) { at("told").replaceChildren(make("li", "dim", "", make("span"), make("span", "", "Nothing yet."))); told = 0; return; }
  if (told === lab.told.at(-1)) return;
  told = lab.told.at(-1);
  const levels = (level) => (level >= 40 ? "bad" : level >= 30 ? "warn" : "");
  at("told").replaceChildren(...lab.told.toReversed().map(([wall, level, text]) => {
    const time = make("time", "", clock(wall));
    time.dateTime = new Date(wall * 1000).toISOString();
    return make("li", levels(level), "", time, make("span", "words", text));
  }));
}

function draw() {
  drawHead();
  gantt.draw();
  jobs.draw();
  drawUnits();
  drawCurve();
  drawTold();
  if (!document.documentElement.dataset.painted) {
    document.documentElement.dataset.painted = "yes";
    performance.mark("painted");
  }
}

let asked = false;
function changed() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; draw(); });
}

follow(changed, (state) => {
  const live = at("live");
  live.className = `live ${state}`;
  say(live, state === "on" ? "live" : "no connection; trying again");
});
