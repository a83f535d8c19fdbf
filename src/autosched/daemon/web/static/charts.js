// Stepped curves with uPlot, drawn anew when colours change.
import { colour, make, say } from "./dom.js";
import { latency, short } from "./format.js";

const INKS = ["build", "profile", "update", "select", "compile", "evaluate", "import", "bad"];

// series: [{name, points: [[x, y], ...]}]; x in seconds or trials.
export class Curves {
  constructor(place, { y = latency, none = "No latency yet: this fills with the first valid trials." } = {}) {
    this.place = place; this.y = y; this.none = none; this.plot = null; this.names = "";
    this.shown = null;
    new ResizeObserver(() => { if (this.plot) this.plot.setSize(this.size()); }).observe(place);
  }

  size() { return { width: Math.max(200, this.place.clientWidth - 16), height: 240 }; }

  recolour() { this.names = ""; if (this.shown) this.show(...this.shown); }

  show(series, axis) {
    this.shown = [series, axis];
    const some = series.filter((one) => one.points.length);
    if (!some.length) {
      this.plot?.destroy();
      this.plot = null; this.names = "";
      const said = this.place.querySelector(".none");
      if (said) say(said, this.none); else this.place.replaceChildren(make("p", "none", this.none));
      return;
    }
    const data = align(some.slice(0, INKS.length));
    const names = `${axis}|${some.map((one) => one.name).join("|")}`;
    if (this.plot && names === this.names) { this.plot.setData(data); this.latest(); return; }
    this.names = names;
    this.plot?.destroy();
    this.place.replaceChildren();
    this.plot = new uPlot(this.options(some, axis), data, this.place);
    this.plot.over.addEventListener("mouseleave", () => this.latest());
  }

  // The legend says how it stands, unless a user points at another moment.
  latest() {
    if (!this.plot.over.matches(":hover")) this.plot.setLegend({ idx: this.plot.data[0].length - 1 });
  }

  options(some, axis) {
    const dim = colour("dim"), line = colour("line"), y = this.y;
    const plain = { stroke: dim, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui, sans-serif" };
    const write = axis === "trials" ? (v) => String(Math.round(v)) : short;
    return {
      ...this.size(), padding: [8, 12, 0, 0],
      scales: { x: { time: false }, y: { range: (u, low, high) => [0, high * 1.06] } },
      legend: { live: true },
      hooks: { ready: [() => this.latest()] },
      cursor: { points: { size: 6 } },
      axes: [
        { ...plain, values: (u, ticks) => ticks.map(write), label: axis === "trials" ? "trials" : "", labelSize: axis === "trials" ? 16 : 0, labelFont: "11px system-ui, sans-serif" },
        { ...plain, size: 64, values: (u, ticks) => ticks.map((v) => (v ? y(v) : "0")) },
      ],
      series: [
        { label: axis === "trials" ? "Trials" : "Time", value: (u, v) => (v === null || v === undefined ? "" : write(v)) },
        ...some.slice(0, INKS.length).map((one, index) => ({
          label: one.name, stroke: colour(INKS[index]), width: 1.5, spanGaps: true, points: { show: (u, series) => u.data[series].filter((v) => v !== null).length < 3, size: 5 },
          paths: uPlot.paths.stepped({ align: 1 }), value: (u, v) => (v === null || v === undefined ? "–" : y(v)),
        })),
      ],
    };
  }
}

// One list of x for all; where a series has no point of its own its last value goes on.
function align(series) {
  const all = [...new Set(series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
  const columns = series.map((one) => {
    const values = new Map(one.points);
    let last = null;
    return all.map((x) => { last = values.get(x) ?? last; return last; });
  });
  return [all, ...columns];
}
