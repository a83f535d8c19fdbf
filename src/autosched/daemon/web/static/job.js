// One job: where it stands and why, how its latency fell, and its tasks by their share of it.
import { Curves } from "./charts.js";
import { at, choice, make, post, say, themeButton } from "./dom.js";
import { follow, lab } from "./feed.js";
import { duration, gain, latency, percent } from "./format.js";
import { request } from "./session.js";

const number = Number(location.pathname.split("/")[2]);
const network = new Curves(at("curve")), tasks = new Curves(at("task-curves"));
let axis = "time", curves = null, view = null, seen = "", asking = false;

at("report").href = `/jobs/${number}/report`;
choice(at("axis"), [["time", "Time"], ["trials", "Trials"]], "time", (chosen) => { axis = chosen; drawCurves(); });
themeButton(() => { network.recolour(); tasks.recolour(); });
at("cancel").addEventListener("click", async () => {
  if (confirm(`Cancel job ${number}? Its records are kept.`)) await post("cancel", { job: number });
});

async function load() {
  if (asking) return;
  asking = true;
  try {
    const [about, fell] = await Promise.all([request(`/api/jobs/${number}`), request(`/api/jobs/${number}/curves`)]);
    if (!about.ok) {
      at("problem").replaceChildren(make("p", "notice bad", (await about.json()).error));
      for (const panel of [...document.querySelectorAll("main > *")].slice(1)) panel.hidden = true;
      at("report").hidden = true;
      return;
    }
    const body = await about.json();
    view = body.job;
    draw(body.explained);
    if (fell.ok) { curves = await fell.json(); drawCurves(); }
    document.documentElement.dataset.painted = "yes";
  } finally { asking = false; }
}

function weighed() {
  const shares = view.tasks.map((task) => (task.best_s ?? 0) * task.weight);
  const whole = shares.reduce((sum, each) => sum + each, 0) || 1;
  return view.tasks.map((task, index) => [task, shares[index] / whole]).sort((a, b) => b[1] - a[1]);
}

function whole() {
  const { comparison: known, estimate_s: sum, result_s: result } = view;
  if (result !== null) return result;
  return known && sum !== null ? known.scale * sum + (known.rest_s ?? 0) : sum;
}

function toBeat({ baseline, module_s: module, rest_s: rest }) {
  const ours = whole(), ended = view.result_s !== null;
  const times = ours ? baseline.median_s / ours : null;
  const said = times ? `${ended ? "measured" : "expected"}: ${times >= 1 ? `x${times.toFixed(2)} faster` : `x${(1 / times).toFixed(2)} slower`}${rest === null && !ended ? ", tuned operators alone" : ""}` : "";
  const ready = module && !ended ? `a module of ${latency(module)} can be fetched` : "";
  return [`To beat: ${baseline.runtime}`, latency(baseline.median_s), [baseline.form, said, ready].filter(Boolean).join("; ")];
}

function goalFact(goal) {
  const word = { met: "met", missed: "not met", unclear: "neither met nor missed for sure" }[goal.reached];
  const ended = goal.ended ? `; the search ended: ${goal.ended}` : "";
  return ["Goal", latency(goal.goal_s), `${word}: ${latency(goal.latency_s)} (${latency(goal.low_s)} to ${latency(goal.high_s)})${ended}`];
}

function draw(explained) {
  document.title = `autosched: job ${number} ${view.name}`;
  say(at("title"), `Job ${number}: ${view.name}`);
  const failed = view.failure ? [make("p", "notice bad", view.failure.message)] : [];
  if (view.shared_units) failed.push(make("p", "notice", "Steps of this job shared units with others: its latencies are disturbed."));
  at("problem").replaceChildren(...failed);
  const took = (view.ended_at ?? view.now) - view.submitted_at;
  const reasons = Object.entries(view.failures).sort((a, b) => b[1] - a[1]).map(([why, many]) => `${many} ${why}`).join(", ");
  const stands = ["waiting", "held", "paused"].includes(view.doing) ? view.doing : view.state;
  const facts = [
    ["State", stands, view.reason === view.state ? "" : view.reason],
    [view.result_s === null ? "Network, estimated" : "Network", latency(whole()), view.first_estimate_s ? `${gain(view.first_estimate_s, view.estimate_s)} of the first valid schedules, ${latency(view.first_estimate_s)}` : "no valid trial of each task yet"],
    ...(view.comparison ? [toBeat(view.comparison)] : []),
    ...(view.goal ? [goalFact(view.goal)] : []),
    ["Trials", `${view.trials}${view.trials_total === null ? "" : ` of ${view.trials_total}`}`, view.failed ? `${view.failed} failed: ${reasons}` : "none failed"],
    ["Time", duration(took), view.eta_s === null ? "" : `${duration(view.eta_s)} left at this rate`],
    ["Searched by", view.backend, `on ${view.device}, target ${view.target}`],
    ["Disturbed", String(view.disturbed_records), view.disturbed_records ? "measurements, which are repeated" : "measurements"],
  ];
  at("about").replaceChildren(...facts.map(([name, value, more]) => make("div", "", "", make("dt", "", name), make("dd", "", value, make("small", "", more)))));
  at("why").replaceChildren(...explained.map((line) => make("li", "", line)));
  at("tasks").tBodies[0].replaceChildren(...weighed().map(([task, part]) => taskRow(task, part)));
  at("tasks").classList.toggle("known", view.tasks.some((task) => task.came_from));
  at("curves").hidden = view.ended_at !== null && !view.trials;
  at("tasks-panel").hidden = !view.tasks.length;
  at("cancel").hidden = view.ended_at !== null || lab.role === "viewer" || !lab.role;
}

function taskRow(task, part) {
  const meter = make("span", "meter", "", document.createElement("i"));
  meter.firstChild.style.width = `${100 * part}%`;
  const speed = task.best_s && task.flops ? (task.flops / task.best_s / 1e9).toFixed(1) : "–";
  const name = make("td", "name", task.shape || task.name);
  name.title = task.name;
  const wide = "wide"; // not on a phone
  const cells = [[task.weight, wide], [task.trials], [task.failed || "–", wide], [latency(task.first_s), wide], [latency(task.best_s)],
    [gain(task.first_s, task.best_s)], [speed, wide]];
  return make("tr", "", "", name, make("td", "num", "", meter, make("span", "", percent(part))),
    ...cells.map(([text, where]) => make("td", `num ${where ?? ""}`, String(text))), make("td", "from dim", task.came_from), make("td", "dim", task.stage || ""));
}

function drawCurves() {
  if (!curves || !view) return;
  network.show([{ name: view.name, points: curves.estimates[axis] }], axis);
  const heaviest = weighed().slice(0, 8).map(([task]) => ({ name: `${task.task} ${task.name}`, points: curves.tasks[task.task]?.[axis] ?? [] }));
  tasks.show(heaviest, axis);
}

// Asked again when something about it has changed, and not more often than every few seconds.
let due = 0;
follow(() => {
  const row = lab.jobs.get(number), now = JSON.stringify(row ?? null);
  if (now !== seen && performance.now() >= due) { seen = now; due = performance.now() + 3000; load(); }
}, (state) => {
  const live = at("live");
  live.className = `live ${state}`;
  say(live, state === "on" ? "live" : "no connection; trying again");
}, false);
