// What the daemon tells: everything at first, then what changed, once a second. After an interruption everything again.

import { ask, request } from "./session.js";

export const lab = {
  head: null, role: "", units: new Map(), jobs: new Map(), curves: new Map(), steps: new Map(), idle: [], told: [], missed: 0, missedIdle: 0,
  since: 0, idleSince: 0, // from then on all steps are known, and all idle time
  began: 0, // this life of the daemon
};
const AGAIN_MS = 2000, STEPS_KEPT = 8000, IDLE_KEPT = 8000, TOLD_KEPT = 120;
let offset = null; // of the daemon's clock to ours, seconds

export function now() {
  return performance.now() / 1000 + (offset ?? 0);
}

function setClock(daemonNow) {
  const measured = daemonNow - performance.now() / 1000;
  offset = offset === null || Math.abs(measured - offset) > 2 ? measured : offset + 0.2 * (measured - offset);
}

function take(body) {
  setClock(body.now);
  if (body.lab) lab.head = body.lab;
  for (const unit of body.units ?? []) lab.units.set(unit.unit, unit);
  for (const job of body.jobs ?? []) lab.jobs.set(job.job, job);
  for (const [job, points] of Object.entries(body.curves ?? {})) {
    const known = lab.curves.get(Number(job)) ?? [];
    const last = known.length ? known[known.length - 1][0] : -Infinity;
    lab.curves.set(Number(job), known.concat(points.filter((point) => point[0] > last)));
  }
  for (const step of body.steps ?? []) addStep(step);
  for (const spell of body.idle ?? []) lab.idle.push(spell);
  if (lab.idle.length > IDLE_KEPT) for (const spell of lab.idle.splice(0, lab.idle.length - IDLE_KEPT)) lab.idleSince = Math.max(lab.idleSince, spell[2]);
  lab.missedIdle += body.missed_idle ?? 0;
  for (const words of body.told ?? []) tell(words);
  if (lab.told.length > TOLD_KEPT) lab.told.splice(0, lab.told.length - TOLD_KEPT);
  if (body.missed) {
    lab.missed += body.missed;
    const running = new Set(body.running ?? []);
    for (const step of lab.steps.values()) if (step[6] === null && !running.has(step[0])) step[6] = body.now; // its end was among them
  }
}

function tell(words) {
  const known = lab.told.findLast(([wall]) => wall <= words[0]);
  if (known && known[0] === words[0] && known[2] === words[2]) return; // news that came while everything was asked for
  const stall = ([, , text]) => text.startsWith("the daemon stood still for");
  if (stall(words) && lab.told.length && stall(lab.told.at(-1))) lab.told.pop(); // of a run the last one says enough
  lab.told.push(words);
}

function addStep(step) {
  const known = lab.steps.get(step[0]);
  if (known && known[6] !== null && step[6] === null) return; // its end was told already
  lab.steps.set(step[0], step);
  if (lab.steps.size > STEPS_KEPT) {
    const [oldest, [, , , , , , ended]] = lab.steps.entries().next().value;
    lab.steps.delete(oldest);
    lab.since = Math.max(lab.since, ended ?? 0);
  }
}

async function get(path) {
  const answer = await request(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

// Jobs before those that are known, the latest first.
export async function older() {
  const ended = [...lab.jobs.values()].filter((job) => job.state !== "running" && job.state !== "starting");
  const before = Math.min((lab.head?.jobs ?? 0) + 1, ...ended.map((job) => job.job));
  for (const job of (await get(`/api/jobs?before=${before}`)).jobs) lab.jobs.set(job.job, job);
}

// Calls `changed` after each piece of news, and `connection` with "on" or "off".
export function follow(changed, connection, past = true) {
  let waiting = null; // news that came before everything was there
  async function anew() {
    waiting = [];
    const begun = waiting;
    try {
      const body = await get("/api/everything");
      lab.role = body.role;
      lab.units.clear(); lab.curves.clear(); lab.told.length = 0;
      take(body);
      changed();
      if (past) {
        const before = await get("/api/past");
        lab.steps.clear();
        lab.since = before.since;
        lab.idleSince = before.idle_since;
        lab.began = before.began_at;
        for (const step of before.steps) addStep(step);
        lab.idle = before.idle;
      }
      for (const news of begun) take(news);
      if (waiting === begun) waiting = null;
      changed();
      connection("on");
    } catch (error) {
      connection("off");
      setTimeout(anew, 3000);
    }
  }
  const told = {
    open: anew, // once more: what happened before it opened was not told
    anew,
    message: (data) => {
      const body = JSON.parse(data);
      if (waiting) { waiting.push(body); return; }
      take(body);
      changed();
    },
    error: () => connection("off"),
  };
  const leaving = new AbortController();
  addEventListener("pagehide", () => leaving.abort());
  listen("/api/feed", told, leaving.signal);
  anew();
}

// Server-sent events, by `fetch`, since an EventSource cannot show the session. Connects again until it is stopped.
async function listen(path, told, signal) {
  while (!signal.aborted) {
    try {
      const answer = await ask(path, { cache: "no-store", signal });
      if (!answer.ok) throw new Error(await answer.text());
      told.open();
      let text = "";
      for (const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader(); ;) {
        const { done, value } = await pieces.read();
        if (done) break;
        const events = (text + value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const lines = event.split("\n");
          const field = (name) => lines.filter((line) => line.startsWith(`${name}: `)).map((line) => line.slice(name.length + 2)).join("\n");
          if (field("data")) told[field("event") || "message"](field("data"));
        }
      }
    } catch { /* the connection broke */ }
    if (signal.aborted) return;
    told.error();
    await new Promise((again) => setTimeout(again, AGAIN_MS));
  }
}
