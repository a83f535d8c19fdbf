"""Runs the benchmarks and writes benchmarks/RESULTS.md: ``python benchmarks/run.py [NAME ...]`` or ``make bench``.

Each benchmark leaves its JSON in benchmarks/results/; RESULTS.md is made from all that lies there, so that one of them can
be repeated alone.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import capacity_page
import durability_page
import early_stopping
import records_page
import search_page
import thesis_page
import trained_networks_page
import verdicts_page

HERE = Path(__file__).parent
RESULTS = HERE / "results"
FOUR_JOBS = ["thesis.py", "--sets", "4 equal", "4 unequal", "--no-distortion"]
BENCHMARKS = {
    "daemon_costs": ["daemon_costs.py"],
    "mock_load": ["mock_load.py"],
    "mock_load_memory": ["mock_load.py", "--in-memory"],
    "transitions": ["transitions.py"],
    "transitions_floor": ["transitions_floor.py"],
    "records": ["records.py", "--postgresql"],
    "store_cost": ["store_cost.py"],
    "known_again": ["known_again.py"],
    "round_trip": ["round_trip.py"],
    "latency_goals": ["latency_goals.py"],
    "idle_connections": ["idle_connections.py"],
    "page_load": ["page_load.py"],
    "decision_cost": ["decision_cost.py"],
    "restart_cost": ["restart_cost.py"],
    "bit_flips": ["bit_flips.py"],
    "scheduling": ["scheduling.py"],
    "foreknowledge": ["foreknowledge.py"],
    "squeezenet": ["whole_network.py", "squeezenet", "--trials", "400"],
    "resnet18": ["whole_network.py", "resnet18", "--trials", "500"],
    "resnet50": ["whole_network.py", "resnet50", "--trials", "500"],
    "centerface": ["whole_network.py", "centerface", "--trials", "500"],
    "trained_networks": ["trained_networks.py"],
    "verdicts": ["verdicts.py"],
    "layouts": ["layouts.py", "--networks", "rnet", "pyramid", "--seeds", "3"],
    "earlier": ["earlier.py", "--pairs", "rnet:onet", "mobilenet_v1:mobilenet_v2", "resnet18:resnet50", "--seeds", "1"],
    "early_stopping": ["early_stopping.py"],
    "against_stock": ["against_stock.py"],
    "quality": ["against_stock.py", "--quality", "--seeds", "5"],
    "quality_128": ["against_stock.py", "--quality", "--seeds", "3", "--trials", "128"],
    "thesis": ["thesis.py"],
    "thesis_distortion": ["thesis.py", "--only-distortion", "--policies", "predictive", "--trials", "120"],
    "thesis_long": [*FOUR_JOBS, "--trials", "512", "--policies", "predictive"],
}
TIMEOUT_S = 8 * 3600


def main() -> None:
    """Run what was named, or everything; write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(BENCHMARKS), metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--page-only", action="store_true", help="write RESULTS.md from what was measured before")
    args = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for name in [] if args.page_only else args.names:
        script, *words = BENCHMARKS[name]
        print(f"== {name}", flush=True)
        command = [sys.executable, str(HERE / script), *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S)
        measured = json.loads(done.stdout[done.stdout.rindex("\n{") :] if "\n{" in done.stdout else done.stdout)
        (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine(), **measured}, indent=1) + "\n")
    (HERE / "RESULTS.md").write_text("\n".join(page()) + "\n")
    if (measured_in := RESULTS / "thesis.json").exists():
        thesis_page.write(json.loads(measured_in.read_text()), RESULTS)


def machine() -> str:
    """What it ran on."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    packages = ", ".join(f"{name} {version(name)}" for name in ("apache-tvm", "apache-tvm-ffi", "onnxruntime"))
    return f"{len(os.sched_getaffinity(0))} cores, {model}; Python {platform.python_version()}, {packages}"


def page() -> list[str]:
    """RESULTS.md, line by line."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    lines = [
        "# Numbers",
        "",
        "Written by `make bench` (`python benchmarks/run.py`). Ratios within one run count; absolute",
    ]
    lines += ["times depend on the machine, which is shared.", ""]
    for name, section in PAGES.items():
        if name in found:
            lines += [*section(found[name]), "", f"Machine: {found[name].get('machine', 'unknown')}.", ""]
    return lines


def _stock(told: dict[str, Any]) -> list[str]:
    first, second = told["networks"]
    both = told["two_networks"]
    lines = [
        "## Against stock TVM",
        "",
        f"`python benchmarks/against_stock.py`: {told['trials']} trials per network in rounds of {told['batch']}, the same",
        "tasks, search settings and cores. Stock: `tune_tasks` with its own builder, runner and cost model.",
        "",
        "| | bar | measured |",
        "|---|---|---|",
        f"| {first}, tuning time over stock's (median of {len(told['seeds'])} seeds) | <= 0.333 | {told['wall_ratio']:.3f} |",
        f"| {first} and {second} at once, over stock one after the other | <= 0.25 | {both['wall_ratio']:.3f} |",
        f"| {first}, tuned latency over stock's (median of seeds, re-measured alone) | <= 1.05 | {told['latency_ratio']:.3f} |",
        "",
        "| seed | ours s | stock s | ratio | ours latency us | stock latency us | ratio | first record s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for number, seed in enumerate(told["seeds"]):
        lines.append(
            f"| {number} | {seed['ours_wall_s']:.0f} | {seed['stock_wall_s']:.0f} | {seed['wall_ratio']:.3f}"
            f" | {1e6 * seed['ours_latency_s']:.0f} | {1e6 * seed['stock_latency_s']:.0f} | {seed['latency_ratio']:.3f}"
            f" | {seed['first_record_s']:.1f} |"
        )
    seed = told["seeds"][0]
    lines += [
        "",
        "Where the time goes (seed 0, seconds):",
        "",
        "| autosched, leases by stage | | stock, its own profiler | |",
    ]
    lines += ["|---|---|---|---|"]
    ours = sorted(seed["ours_stages_s"].items(), key=lambda item: -item[1])
    stock = sorted(seed["stock_stages_s"].items(), key=lambda item: -item[1])[:8]
    for row in range(max(len(ours), len(stock))):
        left = f"{ours[row][0]} | {ours[row][1]:.1f}" if row < len(ours) else "|"
        right = f"{stock[row][0]} | {stock[row][1]:.1f}" if row < len(stock) else "|"
        lines.append(f"| {left} | {right} |")
    lines += ["", "Busy while a task waits for it (working by the client's clock; bar >= 0.90):", ""]
    for name, busy in (
        (first, seed["busy_while_waited_for"]),
        (f"{first} and {second}", both["busy_while_waited_for"]),
    ):
        lines.append(f"- {name}: " + ", ".join(f"{unit} {share:.3f}" for unit, share in busy.items()))
    return lines


def _quality(told: dict[str, Any]) -> list[str]:
    lines = [
        f"## Quality at equal trials: {told['trials']}",
        "",
        f"`python benchmarks/against_stock.py --quality --seeds {len(told['pairs_s'])} --trials {told['trials']}`: {told['network']}. So few"
        " trials leave much to luck, hence more seeds; stock's builder is spared its slow import here, which changes its time and not its search.",
        "",
        "| seed | ours us | stock us | ratio |",
        "|---|---|---|---|",
    ]
    for seed, (ours_s, stock_s) in enumerate(told["pairs_s"]):
        lines.append(f"| {seed} | {1e6 * ours_s:.0f} | {1e6 * stock_s:.0f} | {ours_s / stock_s:.3f} |")
    first = sorted(ours_s / stock_s for ours_s, stock_s in told["pairs_s"][:3])[1]
    lines += [
        "",
        f"Median of the ratios {told['median_of_ratios']:.3f} (of the first three seeds {first:.3f}), ratio of the medians"
        f" {told['ratio_of_medians']:.3f}; bar <= 1.05.",
    ]
    return lines


def _network(told: dict[str, Any]) -> list[str]:
    lines = [
        f"## {told['network']} as a whole",
        "",
        f"`python benchmarks/whole_network.py {told['network']} --trials {told['trials']}`, backend {told.get('backend', 'ansor')}:"
        f" {told['tasks']} tasks, {told['took_s'] / 60:.1f} minutes in all.",
        "",
        "| build | median ms | 95 % interval |",
        "|---|---|---|",
    ]
    for name, median_s in told["median_s"].items():
        low_s, high_s = told["interval_s"][name]
        lines.append(f"| {name} | {1e3 * median_s:.2f} | {1e3 * low_s:.2f} to {1e3 * high_s:.2f} |")
    equal = "equal to" if told["outputs_equal"] else "DIFFERENT from"
    lines += [
        "",
        f"Tuned is x{told['speedup']:.1f} faster than default (bar: x10) and takes {told['over_onnxruntime']:.2f} times as long"
        f" as ONNX Runtime on the same core (bar: 1.00). Outputs {equal} ONNX Runtime's (largest difference {told['max_abs_error']:.1e}).",
    ]
    return [*lines, *_operators(told.get("operators", []))]


def _operators(rows: list[dict[str, Any]]) -> list[str]:
    """Where a network and ONNX Runtime spend their time."""
    if not rows:
        return []
    ours_us, theirs_us = (sum(row[side] for row in rows) for side in ("ours_us", "onnxruntime_us"))
    lines = [
        "",
        "The operators in turns with ONNX Runtime's own profile (`benchmarks/operators.py`), in microseconds, those first by which most is lost:",
        "",
        "| operator | calls | tuned | ONNX Runtime | ratio |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        ours, theirs = row["ours_us"], row["onnxruntime_us"]
        ratio = f"{ours / theirs:.2f}" if ours and theirs else "-"
        lines.append(f"| {row['operator']} | {row['calls']} | {ours:.0f} | {theirs:.0f} | {ratio} |")
    return [*lines, f"| all | | {ours_us:.0f} | {theirs_us:.0f} | {ours_us / theirs_us:.2f} |"]


def _layouts(told: dict[str, Any]) -> list[str]:
    """How the layouts that were chosen compare with each single one."""
    rows = told["networks"]
    names = list(rows[0]["latency_s"])
    over = [row["over_better"] for row in rows]
    lines = [
        "## Layouts",
        "",
        "`python benchmarks/run.py layouts`: each network tuned in each single layout and with `--layout auto`, with the same trials,",
        "then measured in turns, in milliseconds. *pyramid* (`benchmarks/pyramid.py`) has few channels where the image is large,",
        "and many where it is small.",
        "",
        "| network | seed | trials | " + " | ".join(names) + " | auto over the best single one (bar: 1.02) |",
        "|---" * (len(names) + 4) + "|",
    ]
    for row in rows:
        cells = " | ".join(f"{1e3 * row['latency_s'][name]:.3f}" for name in names)
        lines.append(f"| {row['network']} | {row['seed']} | {row['trials']} | {cells} | {row['over_better']:.3f} |")
    mean = statistics.geometric_mean(over)
    return [*lines, "", f"Geometric mean {mean:.3f}, from {min(over):.3f} to {max(over):.3f}."]


def _earlier(told: dict[str, Any]) -> list[str]:
    """What a network gains from the job of another one."""
    rows = told["pairs"]
    names = list(rows[0]["latency_s"])
    lines = [
        "## Networks that learn from an earlier job",
        "",
        "`python benchmarks/run.py earlier`: a network tuned with half of the trials after a similar one, which teaches it; and",
        "from nothing (`--fresh`), with all trials and with half of them. Measured in turns, in milliseconds.",
        "",
        "| learner | teacher | seed | trials | "
        + " | ".join(names)
        + " | half taught over all (bar: 1.00) | half over all |",
        "|---" * (len(names) + 6) + "|",
    ]
    for row in rows:
        cells = " | ".join(f"{1e3 * row['latency_s'][name]:.3f}" for name in names)
        over = f"{row['half_taught_over_all']:.3f} | {row['half_over_all']:.3f}"
        lines.append(f"| {row['learner']} | {row['teacher']} | {row['seed']} | {row['trials']} | {cells} | {over} |")
    taught, alone = (statistics.geometric_mean(row[f"half{w}_over_all"] for row in rows) for w in ("_taught", ""))
    return [*lines, "", f"Geometric means: half taught {taught:.3f}, half untaught {alone:.3f}."]


def _costs(told: dict[str, Any]) -> list[str]:
    over = told["overhead_ms"]
    return [
        "## What the daemon costs",
        "",
        "`python benchmarks/daemon_costs.py`",
        "",
        "| | bar | measured |",
        "|---|---|---|",
        f"| first record after submit | 20 s | {told['first_record_s']:.1f} s |",
        f"| CPU of `autosched jobs`, 50 jobs | 150 ms | {1e3 * told['jobs_cpu_s']:.0f} ms |",
        f"| daemon's resident memory | 80 MB | {told['daemon_rss_mb']:.0f} MB |",
        f"| part of a lease in which its stage does not run, p50 / p99 of {over['count']:.0f} steps | - |"
        f" {over['p50']:.1f} / {over['p99']:.1f} ms |",
    ]


def _load(told: dict[str, Any]) -> list[str]:
    steady, meanwhile = told["steady"], told["meanwhile"]
    where, option = ("in memory", " --in-memory") if told["in_memory"] else ("on this disk", "")
    lines = [
        f"## Between two steps on a resource, with {told['clients']} clients and the journal {where}",
        "",
        f"`python benchmarks/mock_load.py{option}`: {told['clients']} processes of the mock backend with {told['tasks']} tasks each on one lane"
        f" and one device, {1e3 * told['stage_s']:.0f} ms a stage, {steady['steps_per_s']:.0f} steps/s in the steady state. From the end of",
        "a stage to the begin of the next one on the same unit, by the clocks of the two clients, where the second had been waiting.",
        "",
        "| ms | p50 | p90 | p99 | max |",
        "|---|---|---|---|---|",
    ]
    for name, part in (
        ("steady state (bar: p99 <= 10)", steady["between_ms"]),
        ("- of it until the daemon has heard", steady["report_ms"]),
        ("- of it from there", steady["order_ms"]),
        (f"while the clients start, {told['startup']['took_s']:.0f} s", told["startup"]["between_ms"]),
        ("meanwhile: a thread that only sleeps wakes late by", meanwhile["late_ms"]),
        ("meanwhile: a few bytes reach the disk in", meanwhile["fsync_ms"]),
    ):
        lines.append(f"| {name} | " + " | ".join(f"{part[q]:.1f}" for q in ("p50", "p90", "p99", "max")) + " |")
    lines += [
        "",
        f"Processor time per step: daemon {steady['daemon_cpu_ms_per_step']:.1f} ms, client"
        f" {steady['clients_cpu_ms_per_step']:.1f} ms. Each order waits for a commit to disk.",
    ]
    return lines


def _decisions(told: dict[str, Any]) -> list[str]:
    policies = {name: sizes for name, sizes in told.items() if name != "machine"}
    lines = [
        "## What a decision costs",
        "",
        "`python benchmarks/decision_cost.py`: processor time of the core at the end of a step, by how many steps wait for 100",
        "hosts and 76 devices. *Deciding* is who starts next (bar: 50 us at 10,000); *noting* takes in what the step's end says;",
        "the daemon has both in one call.",
        "",
        "| policy | waiting | deciding: median | mean | 99 % | noting: median | both: median | mean | 99 % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for policy, sizes in policies.items():
        for size, cost in sizes.items():
            deciding, noting, both = cost["deciding"], cost["noting"], cost["both"]
            found = (*deciding.values(), noting["median"], *both.values())
            lines.append(f"| {policy} | {int(size):,} | " + " | ".join(f"{us:.0f} us" for us in found) + " |")
    return lines


def _scheduling(told: dict[str, Any]) -> list[str]:
    case = told["thesis"]
    lines = [
        "## Scheduling",
        "",
        "`python benchmarks/scheduling.py`, simulated time. The thesis' case (2 equal jobs, 1 lane, 1 device, 50 iterations),"
        f" speed-up over sequential: predictive {case['predictive']:.3f} (bar 1.74, bound {case['bound']:.3f}),"
        f" interleaved {case['interleaved']:.3f}, synchronous {case['synchronous']:.3f}.",
        "",
        "What is told of times: `perfect` every step, `wrong:0` each job's true means, `wrong:1.0` means that are off by a"
        " log-normal factor, `learned` nothing.",
    ]
    titles = {"instances": "The 26 instances", "held_out": "As many generated ones, on which nothing was tuned"}
    for part, title in titles.items():
        against = "best known" if part == "instances" else "lower bound"
        lines += [
            "",
            f"{title}. Makespan over {against}; completion and worst makespan over `interleaved`; and over it the worst of"
            " what the goal is for (the mean completion of a load for latency, else the makespan), never to exceed 1.02:",
            "",
            "| goal | estimates | makespan mean | worst | mean completion | worst makespan | worst of its own |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {row['goal']} | {row['estimates'] or '-'} | {row['ratio_mean']:.3f} | {row['ratio_worst']:.3f} |"
            f" {row['completion']:.3f} | {row['over_interleaved_worst']:.3f} | {_own_worst(row):.3f} |"
            for row in told[part]
        ]
        if kinds := [row for row in told[part] if "of_kinds" in row]:
            lines += ["", "Means in which each kind of load counts once, however many seeds of it there are:", ""]
            lines += [
                f"- {row['goal']}, {row['estimates'] or 'any'}: makespan {row['of_kinds'][0]:.3f}, mean completion"
                f" {row['of_kinds'][1]:.3f}."
                for row in kinds
            ]
    lines += ["", "Jobs that arrive one by one (load 0.7 and 0.9), learned, over `interleaved`:", ""]
    lines += [
        f"- {row['goal']}: mean completion {row['completion_ratio_of_means']:.3f} (ratio of the means;"
        f" {row['completion_mean_of_ratios']:.3f} as mean of the ratios), max slowdown"
        f" {row['worst_slowdown_over_interleaved']:.3f} in the worst of {row['loads']} loads."
        for row in told["arrivals"]
    ]
    lines += ["", "1,000 jobs, 100 hosts, 76 devices, makespan over the bound:", ""]
    lines += [
        f"- {row['load']}, {row['goal']}: {row['over_bound']:.4f} (interleaved {row['interleaved_over_bound']:.4f}), mean"
        f" completion {row['completion']:.3f} of interleaved's."
        for row in told["large"]
    ]
    return lines


def _own_worst(row: dict[str, Any]) -> float:
    return float(row["completion_worst" if row["goal"] == "latency" else "over_interleaved_worst"])


def _foreknowledge(told: dict[str, Any]) -> list[str]:
    ways = {
        "learned": "what steps have shown",
        "early": "a stage's true mean after its first step",
        "told": "all means",
    }
    lines = [
        "### What no learning could bring",
        "",
        "`python benchmarks/foreknowledge.py`: the goal `balanced` on the 26 instances, for whoever knows so much; as"
        " shipped, and with four times the effort for the makespan and so many times the mean completion time. Mean"
        " makespan over best known, mean completion and worst makespan over `interleaved` (wanted: 1.05, 0.80, 1.02);"
        " then the same for loads of at most 12 jobs, each kind counting once.",
        "",
        "| known | weight of completion | makespan | completion | worst | makespan | completion | worst |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in told["rows"]:
        figures = " | ".join(f"{figure:.3f}" for figure in (*row["all"], *row["by_kind"]))
        lines.append(f"| {ways[row['knowing']]} | {row['weight'] or 'as shipped'} | {figures} |")
    return lines


PAGES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "scheduling": _scheduling,
    "foreknowledge": _foreknowledge,
    "against_stock": _stock,
    "quality": _quality,
    "quality_128": _quality,
    "squeezenet": _network,
    "resnet18": _network,
    "resnet50": _network,
    "centerface": _network,
    "trained_networks": trained_networks_page.section,
    "verdicts": verdicts_page.section,
    "layouts": _layouts,
    "earlier": _earlier,
    "daemon_costs": _costs,
    "mock_load": _load,
    "mock_load_memory": _load,
    "transitions": capacity_page.transitions,
    "transitions_floor": capacity_page.floor,
    "idle_connections": capacity_page.idle,
    "page_load": capacity_page.watching,
    "records": records_page.queries,
    "store_cost": records_page.cost,
    "record_kills": records_page.kills,
    "known_again": records_page.again,
    "round_trip": records_page.round_trip,
    "latency_goals": records_page.goals,
    "decision_cost": _decisions,
    "restart_cost": durability_page.restart,
    "bit_flips": durability_page.flips,
    "chaos": durability_page.chaos,
    "seeds": durability_page.seeds,
    "fuzz": durability_page.fuzz,
    "search_quality": search_page.section,
    "search_256": partial(
        search_page.section,
        title="The cost model after 256 trials",
        command="python benchmarks/search_quality.py --trials 256 --seeds 5 --methods 'autotvm xgb' 'autotvm random' --tasks"
        " 'conv 128x28x28-128-3x3 nchw' 'conv 128x28x28-128-3x3 blocked' 'depthwise 384x14x14 nchw' 'matmul 128x768 by 768x768'",
    ),
    "search_last": partial(
        search_page.section,
        title="Templates for channels last (NHWC)",
        command="python benchmarks/search_quality.py --tasks last --seeds 5 --trials 64 --methods 'autotvm xgb' 'autotvm random'",
    ),
    "search_ranking": search_page.ranking,
    "early_stopping": early_stopping.section,
    "search_transfer": partial(search_page.section, title="Layers of ResNet-50: what those of ResNet-18 teach"),
    "thesis": thesis_page.section,
    "thesis_distortion": thesis_page.distortion_section,
    "thesis_long": partial(thesis_page.short_section, "Four jobs with a budget that users have", "thesis_long"),
}
"""Sections of the page in their order."""


if __name__ == "__main__":
    main()
