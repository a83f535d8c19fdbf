"""Claims of the project, with the figures of the last measurement: the rows of RESULTS.md.

Each claim takes its figure from the JSON of a benchmark in benchmarks/results/, so that none is there without a
measurement.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

from raw_results import stamps

RESULTS = Path(__file__).parent / "results"
HEAD = """# Numbers

What autosched claims, with the command behind each figure: `python benchmarks/run.py NAME`, with the NAME of the raw
results, but where another one stands. Ratios within one run count; absolute times depend on the machine. Raw results
name machine and commit; `--show NAME` prints them, `--stale` lists claims whose code has changed since, and
`make recheck` measures quick ones again. Policies, layouts and numbers of trials are compared by
[experiments](../docs/experiments.md#experiments-that-come-with-autosched).
"""
ENGINES = ("onnxruntime", "openvino", "ncnn", "mnn")
WRONG = 0.05
"""Difference of an output from ONNX Runtime's, as a share of its largest value, that marks an engine as wrong."""
Told = Mapping[str, Any]


class Claim(NamedTuple):
    """One row."""

    says: str
    bar: str
    """Required figure, set before the measurement; empty: none."""
    measured: Callable[[Told], str]
    """Returns the figure in words, from the raw results."""


class Source(NamedTuple):
    """Claims from one benchmark."""

    results: str
    """Name of the raw results."""
    claims: Sequence[Claim]
    command: str = ""
    """Command; empty: `run.py` with the name."""


def page() -> str:
    """Returns RESULTS.md."""
    lines = [HEAD]
    for title, sources in SECTIONS.items():
        lines += [f"## {title}", "", "| claim | bar | measured | on | raw results |", "|---|---|---|---|---|"]
        for source in sources:
            path = RESULTS / f"{source.results}.json"
            told = json.loads(path.read_text())
            dates = [stamp.date for stamp in stamps(told)]
            when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
            where = f"[{source.results}](results/{path.name})" + (f": `{source.command}`" if source.command else "")
            lines += [
                f"| {one.says} | {one.bar or '-'} | {one.measured(told)} | {when} | {where} |" for one in source.claims
            ]
        lines += [""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _row(rows: Iterable[Told], **wanted: object) -> Told:
    """Returns the first row with these values."""
    return next(row for row in rows if all(row[name] == value for name, value in wanted.items()))


def _percent(ratio: float) -> str:
    return f"{100 * ratio:+.2f} %"


def _interval(found: Told) -> str:
    return f"{_percent(found['bias'])} ({_percent(found['low'])} to {_percent(found['high'])})"


def ratios(rows: Iterable[Told], engines: Sequence[str]) -> list[float]:
    """Returns our latency relative to the fastest of these engines with ONNX Runtime's outputs, for each network."""
    found = []
    for row in rows:
        median_s = row["median_s"]
        theirs = [median_s[one] for one in engines if one in median_s and row["difference"].get(one, 0.0) <= WRONG]
        if theirs:
            found.append(float(median_s["autosched"] / min(theirs)))
    return found


def _measured(told: Told, cores: int, *, quantised: bool = False) -> list[Told]:
    """Returns the rows of the float networks on which nothing was developed, or of all quantised ones."""
    return [
        row
        for row in told["networks"].values()
        if row["cores"] == cores and row.get("quantised", False) == quantised
        if (quantised or row["half"] == "test") and "autosched" in row.get("median_s", {})
    ]


def _networks(told: Told, cores: int, *, quantised: bool = False) -> str:
    """Returns the latency of these networks relative to other engines, in words."""
    rows = _measured(told, cores, quantised=quantised)
    over, over_best = (ratios(rows, engines) for engines in (("onnxruntime",), ENGINES))
    slower = sum(ratio > 1 for ratio in over)
    return (
        f"{geometric_mean(over):.2f} of ONNX Runtime's ({slower} of {len(over)} slower, the worst {max(over):.2f});"
        f" {geometric_mean(over_best):.2f} of the fastest engine's"
    )


def _first_faster(told: Told, cores: int) -> str:
    rows = _measured(told, cores)
    after_s = [math.inf if row["faster_after_s"] is None else row["faster_after_s"] for row in rows]
    return f"{sum(map(math.isfinite, after_s))} of {len(rows)}, median {median(after_s):.0f} s after the job's start"


def _verdicts(told: Told) -> str:
    rows = [row for row in told.values() if isinstance(row, dict)]
    broken = [one for row in rows for one in row["broken"]]
    return (
        f"{sum(row['rejected'] for row in rows)} of {sum(row['verdicts'] for row in rows)};"
        f" {sum(one['accepted'] for one in broken)} of {len(broken)}"
    )


def _taught(told: Told) -> str:
    taught, half = (geometric_mean([row[name] for row in told["pairs"]]) for name in _HALVES)
    return f"{taught:.3f} (half of them without: {half:.3f})"


_HALVES = ("half_taught_over_all", "half_over_all")


def _whole(name: str) -> Source:
    return Source(name, [Claim(
        f"{name}, one core: latency over ONNX Runtime's", "1.00",
        lambda told: f"{told['over_onnxruntime']:.2f}, in {told['took_s'] / 60:.1f} minutes",
    )])  # fmt: skip


def _over_work(told: Told, policy: str = "predictive") -> str:
    return "; ".join(
        f"{row['set']} {row['over_work']:.3f}"
        for row in told["runs"]
        if row["policy"] == policy and row["set"].startswith("4")
    )


def _over_sequential(told: Told) -> str:
    found = []
    for name in ("2 equal", "2 unequal", "4 equal", "4 unequal"):
        total_s = [_row(told["runs"], set=name, policy=policy)["total_s"] for policy in ("sequential", "predictive")]
        found.append(f"{name} {total_s[0] / total_s[1]:.2f}")
    return "; ".join(found)


def _first_eight(told: Told) -> str:
    of = told["all"]
    return (
        f"{of['ranker']:.3f} ({of['networks']} networks; nearest shape {of['nearest']:.3f}, linear model"
        f" {of['linear']:.3f}, chance {of['random']:.3f})"
    )


def _ratio(told: Told, pair: str, trials: str = "64") -> str:
    latency, _, tasks = told["ratios"][pair][trials]
    return f"{latency:.3f} ({tasks} tasks)"


def _queries(told: Told) -> str:
    names = ("best_10", "hints_10", "all", "other_devices", "nearest_5")
    return "; ".join(
        f"{store['store']} {max(store[name]['p99_ms'] for name in names):.1f} ms" for store in told["stores"]
    )


def _kernels(told: Told) -> str:
    return f"{told['ratio']:.3f} (sum over sum {told['total_ratio']:.3f}), {told['read_back']} of {told['records']}"


def _violations(told: Told) -> str:
    parts = [told[name] for name in ("kills", "matrix", "tvm")]
    steps, records = (sum(part[name] for part in parts) for name in ("steps_made", "records"))
    wrong = sum(len(part["violations"]) for part in (*parts, told["makespan"]))
    return f"{wrong}; {told['kills']['kills']:,} kills, {steps:,} steps, {records:,} records"


def _deployed(told: Told) -> str:
    networks = told["networks"].values()
    starts = [one["start_s"]["runtime"] / one["start_s"]["onnxruntime"] for one in networks]
    call = told["addition"]["call_s"]["runtime"] / told["addition"]["call_s"]["onnxruntime"]
    latencies = [one["latency_s"]["session"] / one["latency_s"]["evaluate"] for one in networks]
    return (
        f"{geometric_mean(starts):.2f} and {max(starts):.2f} of {len(starts)}; {call:.2f};"
        f" {geometric_mean(latencies):.2f} and {max(latencies):.2f}"
    )


def _deployed_lengths(told: Told) -> str:
    file = told["file_bytes"] / told["alone_bytes"]
    return f"{file:.2f}; {max(told['over_alone']):.2f}; {max(told['over_onnxruntime']):.2f}"


def _deployed_sizes(told: Told) -> str:
    networks = told["networks"].values()
    beyond = max(one["loaded_bytes"] - one["library_bytes"] for one in networks)
    second, idle_s = max(one["second_bytes"] for one in networks), max(one["idle_s"] for one in networks)
    wheel = told["addition"]["wheel_bytes"]
    return f"{wheel / 1e6:.1f} MB; {beyond / 1e6:.0f} MB, {second / 1e6:.1f} MB; {idle_s:.3f} s"


def _in_server(told: Told) -> str:
    forks, ended = [row for name, row in told.items() if name.startswith("forks_")], told["ended"]
    left = f"{ended['threads_more']} threads, {ended['memory_more_mb']} MB"
    return f"{told['threads']['different']}; {sum(row['forks'] - row['fine'] for row in forks)}; {left}"


def _seeds(told: Told) -> str:
    seeds, events = (sum(part[name] for part in told["parts"]) for name in ("seeds", "events"))
    return f"0 in {seeds:,} worlds, {events:,} events"


def _frames(told: Told) -> str:
    frames, crashes = sum(part["frames"] for part in told["parts"]), sum(len(part["crashes"]) for part in told["parts"])
    slow, steps = (sum(part["spent"][name] for part in told["parts"]) for name in ("slow", "steps"))
    return f"{crashes} in {frames:,} frames; {slow} of {steps:,}"


def _instances(told: Told, part: str) -> str:
    row = _row(told[part], goal="balanced", estimates="learned")
    return f"{row['ratio_mean']:.3f}, {row['completion']:.3f}, {row['over_interleaved_worst']:.3f}"


SECTIONS: dict[str, Sequence[Source]] = {
    "Networks": [
        Source("trained_networks", [
            Claim("Float networks that nothing was developed on, one core: geometric mean of the latency",
                  "1.00 and 1.00", lambda told: _networks(told, 1)),
            Claim("Quantised networks, one core", "0.85 and 1.00", lambda told: _networks(told, 1, quantised=True)),
            Claim("Float networks on two cores", "1.00 and 1.00", lambda told: _networks(told, 2)),
            Claim("Quantised networks on two cores", "0.85 and 1.00", lambda told: _networks(told, 2, quantised=True)),
            Claim("A module faster than ONNX Runtime's is ready during the search, one core", "",
                  lambda told: _first_faster(told, 1)),
        ], "make bench-networks"),
        *map(_whole, ("squeezenet", "resnet18", "resnet50")),
        Source("verdicts", [
            Claim("Right builds that the verification rejected; broken ones that it accepted", "0; 0", _verdicts),
        ]),
        Source("deploy", [
            Claim("In the runtime, over ONNX Runtime: import, session and first inference with a cold file cache, mean"
                  " and worst network; a call of a network of one addition; latency of a session over that of"
                  " `autosched evaluate`, mean and worst", "0.50 and 1.00; 1.00; 1.01 and 1.01", _deployed),
            Claim("Size of the runtime's wheel; memory of a loaded network beyond its library, of a second session;"
                  " processor time in the second after an inference", "4 MB; 25 MB, 1 MB; 0 s", _deployed_sizes),
        ], "make bench-deploy"),
        Source("lengths", [
            Claim("A text network for 1 to 512 tokens in one file: size over the file for 512 alone; worst latency of a"
                  " length over a network for it alone, over ONNX Runtime", "1.15; 1.25; 0.90", _deployed_lengths),
        ], "make bench-deploy"),
        Source("module_in_server", [
            Claim("8 threads with one module, 80,000 calls: wrong outputs; 3,000 forks: hang; left by 1,000 threads",
                  "0; 0; 2 threads, 2 MB", _in_server),
        ]),
        Source("earlier", [
            Claim("Latency of half of the trials, taught by a similar network, over all trials", "1.00", _taught),
        ]),
        Source("latency_goals", [
            Claim("Latencies asked for that were met; met without a trial; wrong claims", "-; -; 0",
                  lambda told: f"{told['met']} of {told['jobs']}; {told['met_without_search']};"
                  f" {told['wrong_claims']}"),
        ], "python benchmarks/latency_goals.py --state DIR"),
    ],
    "Against stock TVM": [
        Source("against_stock", [
            Claim("Time to tune R-Net with 64 trials, over stock's", "0.333", lambda told: f"{told['wall_ratio']:.3f}"),
            Claim("R-Net and Magika at once, over stock one after the other", "0.25",
                  lambda told: f"{told['two_networks']['wall_ratio']:.3f}"),
            Claim("Latency of R-Net with these 64 trials over stock's, median of three seeds", "1.05",
                  lambda told: f"{told['latency_ratio']:.3f}"),
        ]),
        Source("quality", [Claim("The same, median of five other seeds", "1.05",
                                 lambda told: f"{told['median_of_ratios']:.3f}")]),
        Source("quality_128", [Claim("The same with 128 trials, three seeds", "1.05",
                                     lambda told: f"{told['median_of_ratios']:.3f}")]),
    ],
    "Scheduling": [
        Source("scheduling", [
            Claim("The thesis' case (simulated): speed-up over `sequential`, of a possible 1.755", "1.74",
                  lambda told: f"{told['thesis']['predictive']:.3f}, `interleaved`"
                  f" {told['thesis']['interleaved']:.3f}"),
            Claim("26 instances, times learned, goal balanced: makespan over the best known, mean completion and worst"
                  " makespan over `interleaved`", "1.05, 0.80, 1.02", lambda told: _instances(told, "instances")),
            Claim("24 generated loads on which nothing was tuned, makespan over the bound", "",
                  lambda told: _instances(told, "held_out")),
            Claim("Jobs that arrive one by one: mean completion over `interleaved`", "",
                  lambda told: f"{told['arrivals'][0]['completion_ratio_of_means']:.3f}"),
            Claim("1,000 jobs, 100 hosts, 76 devices, goal makespan: over the bound", "",
                  lambda told: f"{told['large'][0]['over_bound']:.4f}"),
        ]),
        Source("thesis", [
            Claim("TVM, one host core and one device core, 128 trials: time over the busiest unit's work", "1.05",
                  _over_work),
            Claim("`sequential` over `predictive`, time", "", _over_sequential),
            Claim("Bias of measurements, with everything else running over alone", "1 %",
                  lambda told: _interval(told["distortion"]["policies"]["predictive"]["within"])),
            Claim("Tuned latency over jobs tuned alone", "2 %",
                  lambda told: _interval(told["latency"]["against_alone"]["predictive"])),
        ]),
        Source("thesis_long", [
            Claim("512 trials: time over the busiest unit's work", "1.05", _over_work),
        ]),
        Source("decision_cost", [
            Claim("Deciding with 10,000 waiting steps, `predictive`, processor time (median)", "50 us",
                  lambda told: f"{told['predictive']['10000']['deciding']['median']:.0f} us, and"
                  f" {told['predictive']['10000']['noting']['median']:.0f} us to note what it means"),
        ]),
    ],
    "Daemon": [
        Source("daemon_costs", [
            Claim("First record after a submit; memory; processor time of `autosched jobs`", "20 s; 80 MB; 150 ms",
                  lambda told: f"{told['first_record_s']:.1f} s; {told['daemon_rss_mb']:.0f} MB;"
                  f" {1e3 * told['jobs_cpu_s']:.0f} ms"),
        ]),
        Source("mock_load", [
            Claim("100 clients: between two steps on a unit, 99 %", "10 ms",
                  lambda told: f"{told['steady']['between_ms']['p99']:.1f} ms"),
        ]),
        Source("transitions", [
            Claim("1,000 clients: processor time of a durable transition, saturated", "150 us",
                  lambda told: f"{told['saturated']['daemon_cpu_us']:.0f} us, at"
                  f" {told['saturated']['transitions_per_s']:,.0f} a second"),
            Claim("The same at 1,000 a second: answer to the client, 99 %", "5 ms and a flush",
                  lambda told: f"{told['paced']['ack_ms']['p99']:.1f} ms"),
        ]),
        Source("transitions_floor", [
            Claim("The same messages and journal, nothing decided: processor time", "",
                  lambda told: f"{told['durable']['cpu_us']:.0f} us"),
        ]),
        Source("idle_connections", [
            Claim("10,000 idle connections with TLS: share of a core; memory of each", "10 %; 40 kB",
                  lambda told: f"{told['tls']['share_of_a_core']:.1%}; {told['tls']['kB_each']:.1f} kB"),
        ]),
        Source("page_load", [
            Claim("The page with 200 active jobs and 10,000 old ones: painted; stream", "1 s; 50 kB/s",
                  lambda told: f"{told['painted_s']:.2f} s; {told['stream_kb_s']:.0f} kB/s"),
        ]),
        Source("restart_cost", [
            Claim("Restart with 10,000 jobs, all rows checked: first answer", "5 s",
                  lambda told: f"{told['serving_s']:.1f} s (without a snapshot {told['without_snapshot_s']:.1f} s)"),
        ]),
    ],
    "Several machines": [
        Source("fleet", [
            Claim("Four jobs on two hosts at 1 ms from each other: as fast as on one", "1.9",
                  lambda told: f"{told['two_hosts']['ratio']:.2f}"),
            Claim("One job of 36 s whose stages move to a second host: as fast as on one", "1.5",
                  lambda told: f"{told['one_job']['ratio']:.2f}"),
            Claim("A Dask worker killed: its agent is back; longest", "10 s",
                  lambda told: f"{told['dask']['max_s']:.1f} s"),
            Claim("A borrowed host whose owner is back: no process of a job is left; longest", "1 s",
                  lambda told: f"{told['idle']['max_s']:.2f} s"),
            Claim("One task measured on two equal devices: as fast as on one", "1.8",
                  lambda told: f"{told['devices']['ratio']:.2f}"),
            Claim("Hand-over of a unit of another host, beyond the wire: median; 99 %", "15 ms (99 %)",
                  lambda told: f"{told['hand_over']['p50']:.1f} ms; {told['hand_over']['p99']:.1f} ms"),
        ]),
        Source("fleet_scale", [
            Claim("1,000 devices of 100 hosts that come and go, 1,000 (10,000) jobs, simulated: over the bound;"
                  " a decision",
                  "1.005, 60 us", lambda told: f"{told['1000']['over_bound']:.4f} ({told['10000']['over_bound']:.4f}),"
                                               f" {told['1000']['decision_us']['mean']:.0f} us"),
        ]),
        Source("fleet_crowd", [
            Claim("1,000 clients of 20 hosts, all processes: steps lost, trials repeated, processes left; the daemon",
                  "0", lambda told: f"{told['lost']}, {told['repeated']}, {told['left']} ({told['trials']:,} trials,"
                                    f" {told['steps_per_s']:.0f} steps/s); {100 * told['daemon_cpu']:.0f} % of a core,"
                                    f" {told['daemon_mb']} MB"),
        ], "make bench-crowd"),
        Source("boards", [
            Claim("A board: TVM's RPC runner through the daemon over TVM's tracker, time; SqueezeNet over the same core"
                  " as a device, latency, trials per minute", "1.0; 1.02, 0.8",
                  lambda told: f"{told['runner']['ratio']:.2f}; {told['network']['latency_ratio']:.3f},"
                               f" {told['network']['trials_ratio']:.2f}"),
            Claim("Kills in its sessions: lost, repeated, longest that one outlives its step; TVM's programs and jobs"
                  " on two boards: overlaps, passed over by a lower priority", "0, 0, 1 s; 0, 0",
                  lambda told: f"{told['kills']['lost']}, {told['kills']['repeated']},"
                               f" {told['kills']['outlived_s']:.1f} s ({sum(told['kills']['kills'].values())} kills);"
                               f" {told['shared']['overlaps']}, {told['shared']['passed_over']}"
                               f" ({told['shared']['steps']:,} steps)"),
        ], "make bench-rpc ARGS=--keep"),
        Source("host_faults", [
            Claim("Kills, partitions, freezes and steps of clocks over agents: lost, repeated, or two on one unit", "0",
                  lambda told: f"{len(told['hosts']['violations'])} after {told['hosts']['kills']} faults"),
            Claim("The same under jobs with helpers on other hosts", "0",
                  lambda told: f"{len(told['helpers']['violations'])} after {told['helpers']['kills']} faults,"
                               f" {told['helpers']['helpers']} helpers"),
        ], "make chaos ARGS='hosts helpers --clients 12 --brief'"),
    ],
    "Record store": [
        Source("records", [Claim("1,000,000 records: slowest query, 99 %", "1 ms; 2 ms", _queries)]),
        Source("store_cost", [
            Claim("Processor time of the daemon with a store, over without: no records; 2 in each profile step", "1.05",
                  lambda told: f"{told['bare']['ratio']:.3f}; {told['measuring']['ratio']:.3f}"),
        ]),
        Source("known_again", [
            Claim("SqueezeNet again with `--trials 0`: latency and time over the first job's", "1.02, 0.1",
                  lambda told: f"{told['latency_ratio']:.3f}, {told['time_ratio']:.3f}"),
        ]),
        Source("round_trip", [
            Claim("Schedules out to MetaSchedule and back: latency with TVM alone over ours, median; traces byte-equal",
                  "1.02, all", _kernels),
        ]),
    ],
    "Faults": [
        Source("chaos", [
            Claim("Steps lost, counted twice, or two on one unit", "0", _violations),
            Claim("Serving again after kill -9: median, maximum", "5 s",
                  lambda told: f"{told['kills']['serving_again_median_s']:.2f} s,"
                  f" {told['kills']['serving_again_s']:.1f} s"),
        ], "make chaos"),
        Source("record_kills", [
            Claim("200 kills of daemon or PostgreSQL: records of the daemon; in the store", "equal",
                  lambda told: f"{told['records']['records']:,}; {told['records']['stored']:,}"),
        ], "make chaos ARGS='records --clients 20 --brief'"),
        Source("bit_flips", [
            Claim("Single flipped bits in database or log that change anything and are found", "99 %",
                  lambda told: f"{told['found_share']:.1%}"),
        ]),
        Source("seeds", [
            Claim("Invariants violated in simulated worlds with faults", "0", _seeds),
        ], "python benchmarks/compiled.py benchmarks/seeds.py --seeds 1000000 --processes 2"),
        Source("fuzz", [
            Claim("Hostile frames: crashes; steps above 1 ms of processor time", "0; 0", _frames),
        ], "make fuzz"),
    ],
    "Search on single tasks, 64 trials": [
        Source("search_quality", [
            Claim("Latency of `tc` over random choice in its space", "0.90",
                  lambda told: _ratio(told, "tc / tc random")),
            Claim("`autotvm xgb` over random choice in its space", "0.85",
                  lambda told: _ratio(told, "autotvm xgb / autotvm random")),
            Claim("`autotvm xgb` over `ansor`", "1.10", lambda told: _ratio(told, "autotvm xgb / ansor")),
        ], "make bench-search"),
        Source("search_ranked", [
            Claim("`autotvm xgb` with models over random choice with 256 trials, blocked convolutions", "1.00",
                  lambda told: _ratio(told, "autotvm ranked / autotvm random", "64, 256")),
        ], "make bench-zero-shot"),
        Source("zero_shot", [
            Claim("The first eight schedules of networks that were left out: NDCG@8", "0.87", _first_eight),
        ], "make bench-zero-shot"),
        Source("search_transfer", [
            Claim("Layers of ResNet-50, taught by those of ResNet-18, over untaught", "",
                  lambda told: _ratio(told, "autotvm taught / autotvm xgb")),
        ], "make bench-search"),
    ],
}  # fmt: skip
"""Sections of RESULTS.md, in their order."""
