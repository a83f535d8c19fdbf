"""Runs the benchmarks and writes benchmarks/RESULTS.md: ``python benchmarks/run.py [NAME ...]`` or ``make bench``.

Each benchmark writes its JSON to benchmarks/results/, and RESULTS.md is made from all of these (claims.py), so that
each can be repeated alone. ``--show NAME`` prints raw results as tables.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import claims
import tables

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
    "earlier": ["earlier.py", "--pairs", "rnet:onet", "mobilenet_v1:mobilenet_v2", "resnet18:resnet50", "--seeds", "1"],
    "against_stock": ["against_stock.py"],
    "quality": ["against_stock.py", "--quality", "--seeds", "5"],
    "quality_128": ["against_stock.py", "--quality", "--seeds", "3", "--trials", "128"],
    "thesis": ["thesis.py"],
    "thesis_distortion": ["thesis.py", "--only-distortion", "--policies", "predictive", "--trials", "120"],
    "thesis_long": [*FOUR_JOBS, "--trials", "512", "--policies", "predictive"],
}
TIMEOUT_S = 8 * 3600


def main() -> None:
    """Runs the named benchmarks, or all; writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(BENCHMARKS), metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--page-only", action="store_true", help="write RESULTS.md from what was measured before")
    parser.add_argument("--show", metavar="NAME", help="print raw results as tables")
    args = parser.parse_args()
    if args.show:
        print("\n".join(tables.tables(json.loads((RESULTS / f"{args.show}.json").read_text()))))
        return
    RESULTS.mkdir(exist_ok=True)
    for name in [] if args.page_only else args.names:
        script, *words = BENCHMARKS[name]
        print(f"== {name}", flush=True)
        command = [sys.executable, str(HERE / script), *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S)
        measured = json.loads(done.stdout[done.stdout.rindex("\n{") :] if "\n{" in done.stdout else done.stdout)
        (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine(), **measured}, indent=1) + "\n")
    (HERE / "RESULTS.md").write_text(claims.page())


def machine() -> str:
    """Describes the machine and its packages."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    packages = ", ".join(f"{name} {version(name)}" for name in ("apache-tvm", "apache-tvm-ffi", "onnxruntime"))
    return f"{len(os.sched_getaffinity(0))} cores, {model}; Python {platform.python_version()}, {packages}"


if __name__ == "__main__":
    main()
