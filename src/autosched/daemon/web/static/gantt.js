// Which step used which unit when, and why none did: bars in the colour of their stage, gaps in the tint of their cause.
import { at, colour, make, say } from "./dom.js";
import { lab, now } from "./feed.js";
import { clock, duration, percent, short } from "./format.js";

export const STAGES = ["import", "select", "build", "profile", "update", "compile", "evaluate"];
export const CAUSES = ["nothing ready", "held back", "hand-over", "jobs start", "no job", "held", "paused", "drained", "host away"];
const ROW = 26, AXIS = 22, BAR = 18;
const [STEP, JOB, TASK, STAGE, UNITS, BEGAN, ENDED, OUTCOME] = [0, 1, 2, 3, 4, 5, 6, 7];

export class Gantt {
  constructor() {
    this.seconds = 300;
    this.paused = null; // the moment at which it stands still
    this.selected = null;
    this.drawn = []; // what is where: [x, y, width, step]
    this.canvas = at("canvas");
    this.tip = make("div", "tip");
    this.tip.hidden = true;
    document.body.append(this.tip);
    this.canvas.addEventListener("mousemove", (event) => this.point(event));
    this.canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => { const hit = this.hit(event); if (hit) location.assign(`/jobs/${hit[JOB]}`); });
    at("gantt").addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.legend();
  }

  legend() {
    const entry = (kind, name) => make("span", "", "", make("i", `swatch ${kind}-${name.replace(" ", "-")}`), name);
    const idle = make("span", "", "idle:");
    at("legend").replaceChildren(...STAGES.map((stage) => entry("s", stage)), idle, ...CAUSES.map((cause) => entry("c", cause)));
  }

  pause(yes) { this.paused = yes ? now() : null; this.draw(); }

  span() {
    const end = this.paused ?? now();
    return [end - Math.min(this.seconds, Math.max(30, end - lab.since)), end]; // not before what is known
  }

  units() { return [...lab.units.keys()]; }

  draw() {
    const units = this.units();
    const width = this.canvas.clientWidth, height = units.length * ROW + AXIS, ratio = devicePixelRatio || 1;
    if (!width || !units.length) return;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = `${height}px`;
    }
    const brush = this.canvas.getContext("2d");
    brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    brush.clearRect(0, 0, width, height);
    const [start, end] = this.span();
    const x = (seconds) => ((seconds - start) / (end - start)) * width;
    const rows = new Map(units.map((unit, row) => [unit, row]));
    this.axis(brush, width, units.length * ROW, x, start, end);
    const uses = new Map(units.map((unit) => [unit, { busy: 0, idle: new Map(), known: end }]));
    this.spells(brush, rows, uses, x, start, end);
    this.bars(brush, rows, uses, x, start, end, width);
    this.columns(units, uses, start, end);
    this.horizon(brush, units.length * ROW, x, start);
  }

  // Of what was before the daemon started, steps are known and idle time is not.
  horizon(brush, bottom, x, start) {
    const note = at("idle-since"), since = lab.idleSince;
    note.hidden = since <= Math.max(start, lab.since);
    if (note.hidden) return;
    const when = clock(since + Date.now() / 1000 - now());
    say(note, since > lab.began ? `Why units were idle is known since ${when} (dashed line); before that, only their steps.`
      : `The daemon started at ${when} (dashed line). Before that, only the steps are known, and the axis leaves out the time while it was down.`);
    const px = Math.round(x(since)) + 0.5;
    brush.strokeStyle = colour("dim");
    brush.setLineDash([4, 3]);
    brush.beginPath(); brush.moveTo(px, 0); brush.lineTo(px, bottom); brush.stroke();
    brush.setLineDash([]);
  }

  axis(brush, width, bottom, x, start, end) {
    const step = [5, 10, 30, 60, 120, 300, 600, 900, 1800].find((s) => ((end - start) / s) * 74 <= width) ?? 3600;
    brush.font = '11px system-ui, "DejaVu Sans", sans-serif';
    brush.textAlign = "center";
    brush.fillStyle = colour("dim");
    brush.strokeStyle = colour("line");
    brush.lineWidth = 1;
    const wall = Date.now() / 1000 - now(); // of the daemon's clock to the time of day
    const first = Math.ceil((start + wall) / step) * step - wall;
    for (let tick = first; tick < end; tick += step) {
      const px = Math.round(x(tick)) + 0.5;
      brush.beginPath(); brush.moveTo(px, 0); brush.lineTo(px, bottom); brush.stroke();
      const text = new Date((tick + wall) * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: step < 60 ? "2-digit" : undefined, hour12: false });
      if (px > 24 && px < width - 24) brush.fillText(text, px, bottom + 15);
    }
  }

  spells(brush, rows, uses, x, start, end) {
    const tints = Object.fromEntries(CAUSES.map((cause) => [cause, colour(cause.replace(" ", "-"))]));
    const paint = ([unit, began, ended, cause]) => {
      const row = rows.get(unit);
      if (row === undefined || ended <= start || began >= end) return;
      const from = Math.max(began, start), to = Math.min(ended, end), use = uses.get(unit);
      use.idle.set(cause, (use.idle.get(cause) ?? 0) + to - from);
      brush.fillStyle = tints[cause] ?? tints["nothing ready"];
      brush.fillRect(x(from), row * ROW + 4 + BAR - 5, Math.max(0.5, x(to) - x(from)), 5);
    };
    lab.idle.forEach(paint);
    for (const unit of lab.units.values()) if (unit.idle) paint([unit.unit, unit.idle[0], end, unit.idle[1]]);
  }

  bars(brush, rows, uses, x, start, end, width) {
    const inks = Object.fromEntries([...STAGES, "other"].map((stage) => [stage, colour(stage)]));
    const bad = colour("bad"), focus = colour("text"), ground = colour("panel");
    this.drawn = [];
    brush.textAlign = "left";
    brush.font = '11px system-ui, "DejaVu Sans", sans-serif';
    for (const step of lab.steps.values()) {
      const began = step[BEGAN], ended = step[ENDED] ?? end;
      if (ended <= start || began >= end) continue;
      const left = Math.max(0, x(began)), wide = Math.max(1, Math.min(width, x(ended)) - left);
      for (const unit of step[UNITS]) {
        const row = rows.get(unit);
        if (row === undefined) continue;
        const use = uses.get(unit);
        use.busy += Math.min(ended, end) - Math.max(began, start);
        const top = row * ROW + 4;
        brush.fillStyle = inks[step[STAGE]] ?? inks.other;
        brush.fillRect(left, top, wide > 3 ? wide - 0.75 : wide, BAR);
        if (step[OUTCOME] !== "done" && step[OUTCOME] !== "running") { brush.fillStyle = bad; brush.fillRect(left, top + BAR - 3, wide, 3); }
        if (wide > 22) {
          const text = wide > 84 ? `${step[JOB]} ${step[STAGE]}` : String(step[JOB]);
          if (brush.measureText(text).width < wide - 6) { brush.fillStyle = ground; brush.fillText(text, left + 4, top + 13); }
        }
        if (step[STEP] === this.selected) { brush.strokeStyle = focus; brush.lineWidth = 2; brush.strokeRect(left, top, wide, BAR); }
        this.drawn.push([left, row, wide, step]);
      }
    }
  }

  columns(units, uses, start, end) {
    const names = at("names"), use = at("use");
    if (names.children.length !== units.length || names.dataset.of !== units.join()) {
      names.dataset.of = units.join();
      names.replaceChildren(...units.map((unit) => { const item = make("li", "", unit); item.title = unit; return item; }));
      use.replaceChildren(...units.map(() => make("li", "", "", make("b"), make("span", "idle"), make("span", "why"))));
    }
    const seen = Math.max(1, end - Math.max(start, lab.since));
    units.forEach((unit, row) => {
      const { busy, idle } = uses.get(unit);
      const [share, meter, why] = use.children[row].children;
      say(share, percent(Math.min(1, busy / seen)));
      const causes = [...idle].filter(([, seconds]) => seconds / seen >= 0.005).sort((a, b) => b[1] - a[1]);
      why.title = causes.map(([cause, s]) => `${percent(s / seen)} ${cause}`).join(", ");
      say(why, causes.length ? `idle: ${causes.slice(0, 2).map(([cause, s]) => `${percent(s / seen)} ${cause}`).join(", ")}` : "");
      while (meter.children.length > causes.length) meter.lastChild.remove();
      causes.forEach(([cause, seconds], index) => {
        const part = meter.children[index] ?? meter.appendChild(document.createElement("i"));
        part.className = `c-${cause.replace(" ", "-")}`;
        part.style.width = `${(100 * seconds) / seen}%`;
      });
    });
  }

  hit(event) {
    const box = this.canvas.getBoundingClientRect(), px = event.clientX - box.left, row = Math.floor((event.clientY - box.top) / ROW);
    const found = this.drawn.findLast(([left, its, wide]) => its === row && px >= left - 2 && px <= left + wide + 2);
    return found?.[3];
  }

  point(event) {
    const step = this.hit(event), box = this.canvas.getBoundingClientRect();
    let text = step ? this.words(step) : "";
    if (!step) {
      const unit = this.units()[Math.floor((event.clientY - box.top) / ROW)], [start, end] = this.span();
      const moment = start + ((event.clientX - box.left) / box.width) * (end - start);
      const lasting = lab.units.get(unit)?.idle;
      const spell = lasting && lasting[0] <= moment ? [unit, lasting[0], now(), lasting[1]]
        : lab.idle.findLast(([its, began, ended]) => its === unit && began <= moment && ended >= moment);
      if (spell) text = `${unit} idle for ${short(spell[2] - spell[1])}: ${spell[3]}`;
    }
    this.canvas.style.cursor = step ? "pointer" : "default";
    this.tip.hidden = !text;
    say(this.tip, text);
    this.tip.style.left = `${Math.min(event.clientX + 12, innerWidth - 240)}px`;
    this.tip.style.top = `${event.clientY + 16}px`;
  }

  words(step) {
    const name = lab.jobs.get(step[JOB])?.name;
    const lasts = step[ENDED] === null ? `for ${duration(now() - step[BEGAN])}` : short(step[ENDED] - step[BEGAN]);
    return `${step[STAGE]} of job ${step[JOB]}${name ? ` (${name})` : ""}, task ${step[TASK]}\n${step[UNITS].join(", ")}, ${lasts}, ${step[OUTCOME]}`;
  }

  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const current = this.drawn.find(([, , , step]) => step[STEP] === this.selected);
    if (event.key === "Enter" && current) { location.assign(`/jobs/${current[3][JOB]}`); return; }
    if (event.key === "Escape") { this.selected = null; this.draw(); return; }
    if (!(event.key in moves) || !this.drawn.length) return;
    event.preventDefault();
    const [along, across] = moves[event.key];
    const rows = new Set(this.drawn.map(([, its]) => its)), last = this.units().length - 1;
    let row = (current?.[1] ?? 0) + across;
    while (row >= 0 && row <= last && !rows.has(row)) row += across || 1; // past units that did nothing
    const those = this.drawn.filter(([, its]) => its === row).sort((a, b) => a[0] - b[0]);
    if (!those.length) return;
    let next = those[those.length - 1];
    if (current && !across) next = those[Math.max(0, Math.min(those.length - 1, those.indexOf(current) + along))];
    else if (current) next = those.reduce((best, one) => (Math.abs(one[0] - current[0]) < Math.abs(best[0] - current[0]) ? one : best));
    this.selected = next[3][STEP];
    say(at("gantt-said"), this.words(next[3]));
    this.draw();
  }
}
