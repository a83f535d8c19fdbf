"""Time of a trial in this version and in another one: ``python benchmarks/trial_cost.py --other DIR [NAME ...]``.

DIR is a checkout of the other version, such as a worktree of git. Both versions build and measure the same random
candidates of a network's heaviest tasks, one after the other, in processes that take turns. The time of a trial is that
of its selection, its build and its measurement together. The latencies of the candidates are compared as well: a
cheaper build must not make slower kernels. Prints one JSON object.
"""

import argparse
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from networks import Network, networks

from autosched.backend import Lease
from autosched.model import JobSpec, TaskInfo

HERE = Path(__file__).parent.parent
NETWORKS = ("mtcnn-onet", "centerface", "ppocrv5-rec", "attacut", "orientation-qdq")
TASKS, CANDIDATES, TURNS = 5, 12, 3
"""Numbers of tasks of a network, of candidates of a task, and of runs of each version."""
TIMEOUT_S = 600.0
STAGES = ("select_s", "build_s", "profile_s")
OPTIONS: dict[str, bool | int | float | str] = {"tuner": "random"}


def main() -> int:
    """Compares the versions on the named networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NETWORKS, metavar="NAME", help="networks of networks.toml")
    parser.add_argument("--other", type=Path, metavar="DIR", help="checkout of the other version")
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shapes", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.model:
        print(json.dumps(_trials(args.model, args.shapes)))
        return 0
    if args.other is None:
        parser.error("name a checkout of the other version: --other DIR")
    rows = [_compared(network, args.other.resolve()) for network in networks(*args.names)]
    means = {key: _mean(row[key] for row in rows) for key in ("time_ratio", "build_ratio", "latency_ratio")}
    print(json.dumps({"candidates": TASKS * CANDIDATES, **means, "networks": rows}))
    return 0


def _compared(network: Network, other: Path) -> dict[str, Any]:
    """Returns the medians of both versions, and their ratios."""
    runs: dict[Path, list[dict[str, Any]]] = {HERE: [], other: []}
    for _ in range(TURNS):
        for source, found in runs.items():
            found.append(_run(network, source))
    ours, theirs = ({key: statistics.median(run[key] for run in found) for key in STAGES}
                    for found in runs.values())  # fmt: skip
    slower = [
        run["latency_s"][candidate] / other_run["latency_s"][candidate]
        for run, other_run in zip(*runs.values(), strict=True)
        for candidate in run["latency_s"].keys() & other_run["latency_s"].keys()
    ]
    row = {
        "name": network.name, "ours": ours, "other": theirs,
        "time_ratio": sum(ours.values()) / sum(theirs.values()), "build_ratio": ours["build_s"] / theirs["build_s"],
        "compared": len(slower), "latency_ratio": _mean(slower),
    }  # fmt: skip
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def _run(network: Network, source: Path) -> dict[str, Any]:
    """Returns the times of one version, in a process of its own. That version may not list the network."""
    paths = os.pathsep.join(str(source / folder) for folder in ("src", "plugins"))
    done = subprocess.run(
        [sys.executable, __file__, "--model", network.fetch(), "--shapes", json.dumps(network.shapes)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _trials(model: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Builds and measures candidates; returns seconds per trial, and the latency of each candidate by its digest."""
    from autosched_backend_autotvm import AutoTvmBackend

    cores = sorted(os.sched_getaffinity(0))

    def lease(stage: str, core: int) -> Lease:
        return Lease(stage, (f"cpu{core}",), (core,), TIMEOUT_S)

    with tempfile.TemporaryDirectory(prefix="autosched-trials-") as temporary:
        spec = JobSpec(name="net", model="0" * 64, options=OPTIONS, shapes=shapes)
        session: Any = AutoTvmBackend().open(spec, model, Path(temporary) / "work", Path(temporary) / "out", 1)
        tasks: list[TaskInfo] = sorted(
            session.import_network(lease("import", cores[0])).tasks, key=lambda task: -task.flops * task.weight
        )
        spent_s = dict.fromkeys(STAGES, 0.0)
        count, latency_s = 0, dict[str, float]()
        for info in tasks[:TASKS]:
            tuner = session.tuner(info, 1)
            started = time.perf_counter()
            candidates = tuner.select(CANDIDATES, lease("select", cores[0]))
            selected = time.perf_counter()
            tuner.build(candidates[:1], lease("build", cores[0]))  # begins the workers, and builds the reference
            began = time.perf_counter()
            built = tuner.build(candidates, lease("build", cores[0]))
            made = time.perf_counter()
            found = list(tuner.profile(built, lease("profile", cores[-1])))
            spans_s = selected - started, made - began, time.perf_counter() - made
            for stage, span_s in zip(STAGES, spans_s, strict=True):
                spent_s[stage] += span_s
            count += len(found)
            latency_s |= {
                f"{info.task} {hashlib.sha256(one.candidate).hexdigest()}": one.latency_s[0]
                for one in found
                if one.latency_s
            }
        return {**{stage: span_s / count for stage, span_s in spent_s.items()}, "latency_s": latency_s}


def _mean(ratios: Iterable[float]) -> float:
    """Returns the geometric mean; 1 of no numbers."""
    return math.exp(statistics.fmean([math.log(ratio) for ratio in ratios] or [0.0]))


if __name__ == "__main__":
    sys.exit(main())
