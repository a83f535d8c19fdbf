"""Runs the benchmarks and writes benchmarks/RESULTS.md: ``python benchmarks/run.py [NAME ...]`` or ``make bench``.

Each benchmark writes its JSON to benchmarks/results/, and RESULTS.md is made from all of these (claims.py), so that
each can be repeated alone. ``--show NAME`` prints raw results as tables, ``--stale`` the claims whose code has changed since
they were measured. ``--recheck`` or ``make recheck`` measures all claims again that took less than ten minutes.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import claims
import staleness
import tables
from raw_results import origin, stamps

HERE = Path(__file__).parent
RESULTS = claims.RESULTS
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
    "fleet": ["fleet.py"],
    "fleet_scale": ["fleet_scale.py"],
    "page_load": ["page_load.py"],
    "decision_cost": ["decision_cost.py"],
    "restart_cost": ["restart_cost.py"],
    "bit_flips": ["bit_flips.py"],
    "scheduling": ["scheduling.py"],
    "squeezenet": ["whole_network.py", "squeezenet", "--trials", "400"],
    "resnet18": ["whole_network.py", "resnet18", "--trials", "500"],
    "resnet50": ["whole_network.py", "resnet50", "--trials", "500"],
    "trained_networks": ["trained_networks.py"],
    "verdicts": ["verdicts.py"],
    "module_in_server": ["module_in_server.py"],
    "earlier": ["earlier.py", "--pairs", "rnet:onet", "mobilenet_v1:mobilenet_v2", "resnet18:resnet50", "--seeds", "1"],
    "against_stock": ["against_stock.py"],
    "quality": ["against_stock.py", "--quality", "--seeds", "5"],
    "quality_128": ["against_stock.py", "--quality", "--seeds", "3", "--trials", "128"],
    "thesis": ["thesis.py"],
    "thesis_distortion": ["thesis.py", "--only-distortion", "--policies", "predictive", "--trials", "120"],
    "thesis_long": [*FOUR_JOBS, "--trials", "512", "--policies", "predictive"],
}
TIMEOUT_S = 8 * 3600
RECHECKED_MAX_S = 600.0
OTHER_PROGRAMS = {
    "make chaos": "tests/chaos/__main__.py",
    "make fuzz": "tests/fuzz.py",
    "make bench-": "benchmarks/search_quality.py",
}
"""Programs that measure claims and have another name than the raw results, by the beginning of the command."""


def main() -> int:
    """Runs the named benchmarks, or all; writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(BENCHMARKS), metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--page-only", action="store_true", help="write RESULTS.md from what was measured before")
    parser.add_argument("--show", metavar="NAME", help="print raw results as tables")
    parser.add_argument("--stale", action="store_true", help="list the claims whose code has changed")
    parser.add_argument("--recheck", action="store_true", help="measure again what took less than ten minutes")
    args = parser.parse_args()
    if args.stale:
        print("\n".join(stale()))
        return 0
    if args.show:
        print("\n".join(tables.tables(json.loads((RESULTS / f"{args.show}.json").read_text()))))
        return 0
    RESULTS.mkdir(exist_ok=True)
    failed = []
    for name in [] if args.page_only else quick() if args.recheck else args.names:
        print(f"== {name}", flush=True)
        try:
            measure(name, RECHECKED_MAX_S if args.recheck else TIMEOUT_S)
        except (subprocess.SubprocessError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed.append(name)
            if isinstance(error, subprocess.TimeoutExpired):
                note_time(name, error.timeout)
        (HERE / "RESULTS.md").write_text(claims.page())
    (HERE / "RESULTS.md").write_text(claims.page())
    if failed:
        print(f"not measured: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def measure(name: str, limit_s: float) -> None:
    """Runs one benchmark, and writes its raw results. Raises SubprocessError, or ValueError for other output."""
    script, *words = BENCHMARKS[name]
    began_at, made = time.monotonic(), origin()
    done = subprocess.run(
        [sys.executable, str(HERE / script), *words], stdout=subprocess.PIPE, text=True, check=True, timeout=limit_s
    )
    measured = json.loads(done.stdout[done.stdout.rindex("\n{") :] if "\n{" in done.stdout else done.stdout)
    told = {**made, "wall_s": round(time.monotonic() - began_at), **measured}
    (RESULTS / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")


def quick() -> list[str]:
    """Returns the benchmarks that take less than ten minutes, and those whose time is not known."""
    known = {name: json.loads(path.read_text()) for name in BENCHMARKS if (path := RESULTS / f"{name}.json").exists()}
    return [name for name, told in known.items() if told.get("wall_s", 0.0) < RECHECKED_MAX_S]


def note_time(name: str, wall_s: float) -> None:
    """Adds the time that a benchmark takes at least to its raw results."""
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "wall_s": wall_s}, indent=1) + "\n")


def stale() -> list[str]:
    """Returns a line for each claim's raw results: since when, and in how many files, its code has changed."""
    lines, fresh = [], []
    for source in (source for sources in claims.SECTIONS.values() for source in sources):
        since = stamps(json.loads((RESULTS / f"{source.results}.json").read_text()))[0]
        changed, files = staleness.change(program(source), since)
        if not changed:
            fresh.append(source.results)
            continue
        most = ", ".join(path.removeprefix("src/autosched/") for path in changed[:3])
        lines.append(
            f"{source.results}: measured on {since.date} at {since.commit}; {len(changed)} of {files} files have changed:"
            f" {most}{', ...' if len(changed) > 3 else ''}"
        )
    return [*sorted(lines), f"of unchanged code: {', '.join(sorted(fresh)) or 'none'}"]


def program(source: claims.Source) -> Path:
    """Returns the program that measures a claim."""
    if source.results in BENCHMARKS:
        return HERE / BENCHMARKS[source.results][0]
    if (own := HERE / f"{source.results}.py").exists():
        return own
    return HERE.parent / next(path for command, path in OTHER_PROGRAMS.items() if source.command.startswith(command))


if __name__ == "__main__":
    sys.exit(main())
