// The table of jobs: rows are kept and only what differs is written.
import { at, make, say } from "./dom.js";
import { lab, now, older } from "./feed.js";
import { count, duration, gain, latency } from "./format.js";

// What a job that runs does not do, although it runs.
const STANDS = new Set(["waiting", "held", "paused"]);
const ROWS_MAX = 300, ROWS_MORE = 200;

// What runs is not to be looked for behind a hundred jobs that wait for their clients.
const rank = (job) => ({ running: 0, starting: 1 })[job.state] ?? 2;

export class Jobs {
  constructor() {
    this.rows = new Map();
    this.which = "active";
    this.experiment = ""; // of which alone the jobs are shown
    this.strip = at("experiments");
    this.search = at("jobs-search");
    this.search.addEventListener("input", () => this.draw());
    this.body = at("jobs").tBodies[0];
    this.room = ROWS_MAX;
    this.more = at("jobs-older");
    this.more.addEventListener("click", () => this.older());
  }

  chosen() {
    const words = this.search.value.trim().toLowerCase();
    const active = (job) => job.state === "running" || job.state === "starting";
    return [...lab.jobs.values()]
      .filter((job) => !this.experiment || job.experiment === this.experiment)
      .filter((job) => this.experiment || this.which === "all" || active(job) === (this.which === "active"))
      .filter((job) => !words || `${job.job} ${job.name} ${job.state} ${job.reason} ${job.backend}`.toLowerCase().includes(words))
      .sort((a, b) => rank(a) - rank(b) || b.job - a.job);
  }

  async older() {
    this.more.disabled = true;
    try {
      await older();
      this.room += ROWS_MORE;
    } catch { /* without a connection, which the page says */ }
    this.more.disabled = false;
    this.draw();
  }

  drawExperiments() {
    const found = lab.head?.experiments ?? [];
    this.strip.hidden = !found.length;
    const known = new Map([...this.strip.children].map((button) => [button.dataset.name, button]));
    let before = null;
    for (const one of found) {
      let button = known.get(one.name);
      if (!button) {
        button = make("button", "", "", make("b", "", one.name), make("span", "meter", "", document.createElement("i")), make("span"));
        button.type = "button";
        button.dataset.name = one.name;
        button.addEventListener("click", () => { this.experiment = this.experiment === one.name ? "" : one.name; this.draw(); });
      }
      known.delete(one.name);
      const place = before ? before.nextSibling : this.strip.firstChild;
      if (place !== button) this.strip.insertBefore(button, place);
      before = button;
      const ended = one.done + one.failed;
      button.setAttribute("aria-pressed", String(this.experiment === one.name));
      button.children[1].firstChild.style.width = `${one.jobs ? (100 * ended) / one.jobs : 0}%`;
      say(button.lastChild, `${ended} of ${count(one.jobs)} jobs${one.failed ? `, ${one.failed} failed` : ""}${one.active ? `, ${one.active} active` : ""}`);
    }
    for (const button of known.values()) button.remove();
  }

  draw() {
    this.drawExperiments();
    say(at("jobs-when"), this.which === "ended" ? "Ended" : "ETA");
    const found = this.chosen(), shown = found.slice(0, this.room);
    const head = lab.head ?? { active: 0, jobs: 0 };
    const more = found.length > shown.length ? `, the latest ${shown.length} shown` : "";
    say(at("jobs-count"), `${head.active} active of ${count(head.jobs)}${more}`);
    const unknown = head.jobs - lab.jobs.size;
    this.more.hidden = this.which === "active" || unknown <= 0;
    say(this.more, `Older jobs: ${count(unknown)} more`);
    const keep = new Set(shown.map((job) => job.job));
    for (const [job, row] of this.rows) if (!keep.has(job)) { row.remove(); this.rows.delete(job); }
    let before = null;
    for (const job of shown) {
      let row = this.rows.get(job.job);
      if (!row) { row = this.make(job); this.rows.set(job.job, row); }
      this.write(row, job);
      const place = before ? before.nextSibling : this.body.firstChild;
      if (place !== row) this.body.insertBefore(row, place);
      before = row;
    }
    if (!shown.length) this.none(); else this.body.querySelector(".none")?.remove();
  }

  none() {
    if (this.body.querySelector(".none")) return;
    const cell = make("td", "dim", this.which === "active" ? "No job is active." : "No such job.");
    cell.colSpan = 8;
    this.body.replaceChildren(make("tr", "none", "", cell));
    this.rows.clear();
  }

  make(job) {
    const link = make("a", "", String(job.job));
    link.href = `/jobs/${job.job}`;
    const meter = make("span", "meter", "", document.createElement("i"));
    const row = make("tr", "", "", make("td", "num", "", link), make("td", "name"), make("td", "", "", make("span", "state")),
      make("td", "trials", "", meter, make("span")), make("td", "num"), make("td", "num wide"), make("td", "num eta"), make("td", "grow"));
    return row;
  }

  write(row, job) {
    const [, name, state, trials, best, better, eta, reason] = row.cells;
    say(name, job.name);
    name.title = `${job.name}, ${job.backend} on ${job.device}`;
    const now_is = job.state === "running" && STANDS.has(job.doing) ? job.doing : job.state;
    say(state.firstChild, now_is);
    state.firstChild.className = `state ${now_is}`;
    const total = job.total ?? 0;
    trials.firstChild.firstChild.style.width = `${total ? Math.min(100, (100 * job.trials) / total) : 0}%`;
    say(trials.lastChild, `${count(job.trials)}/${job.total === null || job.total === undefined ? "?" : count(total)}${job.failed ? `  ${job.failed} failed` : ""}`);
    say(best, latency(job.best_s));
    say(better, gain(job.first_s, job.best_s));
    const ended = job.ended_at !== null && job.ended_at !== undefined;
    say(eta, ended ? `${duration(now() - job.ended_at)} ago` : job.eta_s === null || job.eta_s === undefined ? "–" : duration(job.eta_s));
    say(reason, job.reason);
    reason.title = job.reason;
  }
}
