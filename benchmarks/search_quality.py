"""Compares search methods on single tasks at equal trials: ``make bench-search``.

Each run is one task, one method, one seed: rounds of select, build, measure, update, with the workers that a job has,
builds on one core and measurements on another. The best of each run, at 64 trials and at the end, is measured again
beside those of all other runs of its task, in turns. Runs that the output file has already are not done again, so a
run that was stopped goes on, and more seeds or methods can be added. `--quick` takes two minutes.

A method is a name of METHODS, or `NAME=BACKEND:OPTION=VALUE,...` to try options.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import search_page
import search_tasks
from run import machine
from search_tasks import Layer

from autosched import backend
from autosched.tvm import building, intrinsics, orders, targets, tasks
from autosched.tvm import options as option_table
from autosched.tvm.backend import TvmBackend
from autosched.tvm.searching import Search, Site, Unsupported
from autosched.tvm.workers import WorkerError, Workers, prepare

METHODS = {
    "ansor": "ansor", "tc": "tc", "tc compat": "tc:mode=tc_compat", "tc random": "tc:mode=random",
    "autotvm xgb": "autotvm:tuner=xgb", "autotvm ga": "autotvm:tuner=ga", "autotvm random": "autotvm:tuner=random",
    "stock": "stock",
}  # fmt: skip
RESULTS = Path(__file__).parent / "results" / "search_quality.json"
CHECKPOINT = 64
BUILD_TIMEOUT_S = 10.0
RUN_TIMEOUT_S = 10.0
REFERENCE_TIMEOUT_S = 300.0
AGAIN = orders.Plan(repeat=9, min_repeat_s=0.05)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(search_tasks.CORE), help="names, families, or: all")
    parser.add_argument("--methods", nargs="+", default=["ansor", "tc", "tc compat", "tc random", "stock"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="two small tasks, 16 trials, one seed")
    parser.add_argument("--page-only", action="store_true", help="only write the page of what was measured")
    args = parser.parse_args()
    if args.quick:
        args.tasks, args.seeds, args.trials = list(search_tasks.QUICK), 1, 16
        args.output = Path(tempfile.gettempdir()) / "search_quality_quick.json"
        args.output.unlink(missing_ok=True)
    return args


def main() -> None:
    """Run what is missing, tell, and write the page."""
    args = arguments()
    told = json.loads(args.output.read_text()) if args.output.exists() else {"runs": [], "skipped": []}
    told["machine"] = machine()
    if not args.page_only:
        with tempfile.TemporaryDirectory(prefix="autosched-search-") as folder:
            intrinsics.install()
            prepare()
            place = Place(Path(folder))
            for layer in chosen(args.tasks):
                for _ in compared(place, layer, args, told):
                    args.output.write_text(json.dumps(told, separators=(",", ":")))
    search_page.write(told, args.output.with_suffix(".html"))
    print("\n".join(search_page.section(told)))
    print(args.output.with_suffix(".html"))


def chosen(names: Sequence[str]) -> list[Layer]:
    """The layers of these names or families."""
    known = search_tasks.layers()
    found = [layer for layer in known.values() if "all" in names or layer.name in names or layer.family in names]
    for name in names:
        if name != "all" and not any(name in (layer.name, layer.family) for layer in found):
            raise SystemExit(f"no task {name!r}; there are: {', '.join(known)}")
    return found


class Place:
    """Where builds and measurements happen."""

    def __init__(self, folder: Path) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self.host, self.device = (cores[0],), (cores[-1],)
        os.sched_setaffinity(0, self.host)
        self.folder = folder
        self.workers = Workers(folder / "logs", recycle_after=200)
        self.target = targets.resolve("auto", 1)
        self._numbers = iter(range(10**9))

    def open(self, layer: Layer) -> "Stand":
        """The layer's place."""
        return Stand(self, layer)

    def file(self, suffix: str) -> str:
        """A new name."""
        return str(self.folder / f"{next(self._numbers)}{suffix}")


class Stand:
    """One task's workload and reference."""

    def __init__(self, place: Place, layer: Layer) -> None:
        self._place, self.layer = place, layer
        self.target = building.load_target(place.target)
        self.workload = layer.workload(self.target)
        self._task, self._reference = place.file(".json"), place.file(".so")
        tasks.save(self.workload, Path(self._task))
        self._call("build", place.host, orders.BUILD, self._task, place.target, b"", self._reference)

    def _call(self, role: str, cores: tuple[int, ...], function: str, *what: Any, timeout_s: float = 300.0) -> Any:
        return self._place.workers.call(role, cores, function, *what, timeout_s=timeout_s)

    def site(self, seed: int) -> Site:
        """As a search sees it."""
        return Site(self.layer.info(self.workload), self.workload, self.target, seed, 1)

    def build(self, candidate: bytes) -> str | None:
        """The artifact; None for a failure."""
        artifact = self._place.file(".so")
        what = (self._task, self._place.target, candidate, artifact)
        try:
            self._place.workers.call(
                "build", self._place.host, orders.BUILD, *what,
                timeout_s=6 * BUILD_TIMEOUT_S, processor_s=BUILD_TIMEOUT_S,
            )  # fmt: skip
        except WorkerError:
            return None
        return artifact

    def profile(self, artifact: str, best_s: float | None) -> tuple[float, ...]:
        """Latencies; none for a failure."""
        try:
            self._call("profile", self._place.device, orders.READY, self._task, self._reference)
            what = (self._task, self._reference, artifact, orders.Plan(best_s=best_s))
            found: tuple[float, ...] = self._call(
                "profile", self._place.device, orders.PROFILE, *what, timeout_s=RUN_TIMEOUT_S
            )
        except WorkerError:
            return ()
        return found

    def again(self, artifacts: Sequence[str]) -> list[float | None]:
        """Median latencies, measured in turns."""
        self._call("profile", self._place.device, orders.READY, self._task, self._reference)
        what = (self._task, self._reference, list(artifacts), AGAIN)
        found = self._call("profile", self._place.device, orders.COMPARE, *what, timeout_s=60.0 + 10.0 * len(artifacts))
        return [None if isinstance(one, str) else median(one) for one in found]


def search_for(method: str, args: argparse.Namespace, site: Site) -> Search:
    """The search that a method's name stands for. Raises Unsupported."""
    text = method.partition("=")[2] if method not in METHODS else METHODS[method]
    name, _, pairs = text.partition(":")
    if name == "stock":
        from search_stock import StockSearch

        return StockSearch(site, args.batch)
    given: dict[str, Any] = {"batch": args.batch}
    for pair in filter(None, pairs.split(",")):
        key, _, value = pair.partition("=")
        given[key] = int(value) if value.lstrip("-").isdigit() else float(value) if "." in value else value
    found = backend.load(name)
    if not isinstance(found, TvmBackend):
        raise SystemExit(f"backend {name} does not search TVM's schedules")
    return found.method(option_table.read(name, found.options, given), 1).search(site)


def compared(place: Place, layer: Layer, args: argparse.Namespace, told: dict[str, Any]) -> Iterator[None]:
    """Add the missing runs of this layer to what is told; yields after each."""
    done = {(run["task"], run["method"], run["seed"]) for run in told["runs"] if run["trials"] >= args.trials}
    missing = [
        (method, seed)
        for seed in range(args.first_seed, args.first_seed + args.seeds)
        for method in args.methods
        if (layer.name, method.partition("=")[0], seed) not in done
    ]
    if not missing:
        return
    stand = place.open(layer)
    kept: list[tuple[dict[str, Any], str, str]] = []
    for method, seed in missing:
        try:
            run, artifacts = one_run(stand, method, seed, args)
        except Unsupported as error:
            note = f"{layer.name}, {method}: {error}"
            told["skipped"] = sorted({*told["skipped"], note})
            continue
        kept += [(run, checkpoint, artifact) for checkpoint, artifact in artifacts.items()]
        told["runs"].append(run)
        say(run)
        yield
    for start in range(0, len(kept), 16):
        part = kept[start : start + 16]
        for (run, checkpoint, _), latency_s in zip(part, stand.again([a for *_, a in part]), strict=True):
            run["again_s"][checkpoint] = latency_s
        yield


def one_run(stand: Stand, method: str, seed: int, args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, str]]:
    """One search from its first trial to its last, and the artifacts of the best at the checkpoints."""
    search = search_for(method, args, stand.site(seed))
    run: dict[str, Any] = {
        "task": stand.layer.name, "family": stand.layer.family, "flops": stand.layer.flops,
        "method": method.partition("=")[0], "seed": seed, "trials": args.trials, "failed": 0, "curve": [],
        "stages_s": dict.fromkeys(("select", "build", "profile", "update"), 0.0), "again_s": {},
    }  # fmt: skip
    best_s, best, trials = None, "", 0
    at_best: dict[str, str] = {}
    while trials < args.trials:
        with timed(run, "select"):
            candidates = search.select(min(args.batch, args.trials - trials))
        if not candidates:
            break
        measured = []
        for candidate in candidates:
            with timed(run, "build"):
                artifact = stand.build(candidate)
            with timed(run, "profile"):
                latency_s = stand.profile(artifact, best_s) if artifact else ()
            measured.append((candidate, latency_s))
            trials += 1
            if latency_s and (best_s is None or median(latency_s) < best_s):
                if best and best not in at_best.values():
                    os.unlink(best)
                best_s, best = median(latency_s), artifact or ""
                run["curve"].append([trials, round(sum(run["stages_s"].values()), 3), best_s])
            elif artifact:
                os.unlink(artifact)
            run["failed"] += not latency_s
            if best and trials in (CHECKPOINT, args.trials):
                at_best[str(trials)] = best
        with timed(run, "update"):
            search.update(measured)
    run["measured"] = trials
    if best:
        at_best[str(args.trials)] = best
    return run, at_best


class timed:
    """Adds the time of a block to a stage."""

    def __init__(self, run: dict[str, Any], stage: str) -> None:
        self._run, self._stage = run, stage

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._run["stages_s"][self._stage] += time.monotonic() - self._since


def say(run: dict[str, Any]) -> None:
    """Tell as soon as it is known."""
    best_s = run["curve"][-1][2] if run["curve"] else None
    speed = f"{run['flops'] / best_s / 1e9:7.1f} GFLOP/s" if best_s else "nothing valid"
    spent = " ".join(f"{stage} {seconds:.0f}" for stage, seconds in run["stages_s"].items())
    print(
        f"{run['task']}, {run['method']}, seed {run['seed']}: {speed}, {run['failed']} failed, s: {spent}", flush=True
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
