"""Compares search methods on single tasks at equal trials: ``make bench-search``.

A run is one task, one method, one seed. All runs of a task go on together, round by round: each selects, what none
has asked for before is built on one core and measured on another (search_table.py), each learns. `--keep FOLDER`
keeps what was measured, so that more seeds, methods and trials cost only what is new. A run's time is that of its own
selects and updates, and of the builds and measurements that it asked for, when they were made. The best at 64 trials
and at the end is measured again, longer. Runs that the output file has already are not done again. `--quick` takes two
minutes. `--ranked` compares 64 trials that begin with models of a record store with 256 random ones.

A method is a name of METHODS, or `NAME=BACKEND:OPTION=VALUE,...` to try options. The value `wide` of `space` is for
`autotvm`: all that is legal of each knob, and of tiles every combination, whatever the template thinks of it.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import search_tasks
from raw_results import origin
from search_place import Place, Stand
from search_tasks import Layer
from zero_shot_tuning import stored_rankers

from autosched import backend
from autosched.process.forked_workers import prepare
from autosched_backend_autotvm import template_matching
from autosched_backend_autotvm.config_space import Config, Rule
from autosched_backend_autotvm.search import AutoTvmSearch, Made, Making
from autosched_tvm import worker_messages
from autosched_tvm.compile import intrinsics
from autosched_tvm.tuning import options as option_table
from autosched_tvm.tuning.search_method import Search, SearchContext, Unsupported
from autosched_tvm.tuning.tvm_backend import TvmBackend

METHODS = {
    "ansor": "ansor", "tc": "tc", "tc compat": "tc:mode=tc_compat", "tc random": "tc:mode=random",
    "autotvm xgb": "autotvm:tuner=xgb", "autotvm ga": "autotvm:tuner=ga", "autotvm random": "autotvm:tuner=random",
    "autotvm xgb wide": "autotvm:tuner=xgb,space=wide", "autotvm random wide": "autotvm:tuner=random,space=wide",
    "autotvm stopping": "autotvm:tuner=xgb,early_stopping=32", "autotvm taught": "autotvm:tuner=xgb",
    "autotvm ranked": "autotvm:tuner=xgb", "stock": "stock",
}  # fmt: skip
TAUGHT = ("autotvm taught",)
"""Runs that know what the tasks of `--teach` taught them, as if those were of the same job and ended; but not each
other.
"""
RANKED = ("autotvm ranked",)
"""Runs that begin with the rankers of `--store`."""
Lessons = dict[tuple[str, int], list[tuple[SearchContext, list[tuple[bytes, tuple[float, ...]]]]]]
"""By method and seed, what was measured of each task that teaches."""
Rankers = Mapping[str, bytes]
"""Stored rankers by operator family."""
RESULTS = Path(__file__).parent / "results" / "search_quality.json"
RANKED_RESULTS = RESULTS.with_name("search_ranked.json")
CHECKPOINT, EARLY = 64, 32
PAIRS = (
    ("tc", "tc random"), ("tc compat", "tc random"), ("ansor", "stock"), ("tc", "ansor"),
    ("autotvm xgb", "autotvm random"), ("autotvm xgb wide", "autotvm random wide"), ("autotvm ga", "autotvm random"),
    ("autotvm xgb", "ansor"), ("autotvm stopping", "autotvm xgb"), ("autotvm taught", "autotvm xgb"),
    ("autotvm ranked", "autotvm random"),
)  # fmt: skip
"""Which methods are compared."""
SGEMM_TIMEOUT_S, SGEMM_TRIES = 60.0, 3
SGEMM = """
import time
import numpy as np
left, right = (np.random.default_rng(seed).uniform(0.1, 1, (1536, 1536)).astype("float32") for seed in (0, 1))
def seconds():
    started = time.process_time()
    left @ right
    return time.process_time() - started
print(2.0 * 1536**3 / min(seconds() for _ in range(21)) / 1e9)
"""
"""Prints the speed of a square product in GFLOP/s, by processor time, of which no other process takes a share."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(search_tasks.CORE), help="names, families, or: all")
    parser.add_argument("--methods", nargs="+", default=["ansor", "tc", "tc compat", "tc random", "stock"])
    parser.add_argument("--teach", nargs="+", default=[], metavar="TASK", help=f"tuned first, by {', '.join(TAUGHT)}")
    parser.add_argument("--store", default="", help="record store with the rankers; default: your own")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where tables of what was measured stay")
    parser.add_argument("--build-core", type=int, metavar="N", help="where builds run; default: the first core")
    parser.add_argument("--quick", action="store_true", help="two small tasks, 16 trials, one seed")
    parser.add_argument("--ranked", action="store_true", help="convolutions in blocks, with models and at random")
    args = parser.parse_args()
    if args.ranked:
        args.tasks, args.methods, args.output = list(search_tasks.BLOCKED), ["autotvm random", *RANKED], RANKED_RESULTS
    if args.quick:
        args.tasks, args.seeds, args.trials = list(search_tasks.QUICK), 1, 16
        args.output = Path(tempfile.gettempdir()) / "search_quality_quick.json"
        args.output.unlink(missing_ok=True)
    return args


def main() -> None:
    """Run what is missing, and compare."""
    args = arguments()
    told = json.loads(args.output.read_text()) if args.output.exists() else {"runs": [], "skipped": []}
    told.update(origin())
    rankers = rankers_of(args.store) if {*args.methods} & {*RANKED} else {}
    if args.teach:
        told["taught"] = [layer.name for layer in chosen(args.teach)]
    with tempfile.TemporaryDirectory(prefix="autosched-search-") as folder:
        intrinsics.install()
        prepare(worker_messages.PRELOAD)
        place = Place(Path(folder), args.keep or Path(folder), args.build_core)
        try:
            kept: Lessons = {}
            for layer in chosen(args.teach):
                for run in compared(place, layer, args, {"runs": [], "skipped": []}, {}, {}, TAUGHT):
                    kept.setdefault((run.told["method"], run.site.seed), []).append((run.site, run.measured))
            for layer in chosen(args.tasks):
                compared(place, layer, args, told, kept, rankers, args.methods)
                args.output.write_text(json.dumps(told, separators=(",", ":")))
        finally:
            place.close()
    told["sgemm_gflops"], told["ratios"] = sgemm_gflops(), ratios(told["runs"])
    args.output.write_text(json.dumps(told, separators=(",", ":")))
    print(json.dumps(told["ratios"], indent=1))


def rankers_of(store: str) -> Rankers:
    """Returns the rankers of a record store, which must be of one device model."""
    found = stored_rankers(store)
    if len({one.device for one in found}) > 1:
        raise SystemExit("--store must have rankers of one device model. See:  autosched models list")
    return {one.family: one.content for one in found}


def ratios(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, tuple[float, float, int]]]:
    """By pair of methods and number of trials: ratio of their latencies, see `ratio`. "64, 256": of the first method
    with 64 trials and the second with 256."""
    whole = sorted({run["trials"] for run in runs} | {CHECKPOINT})
    found = {
        f"{method} / {against}": {
            **{str(trials): ratio(runs, method, against, trials, trials) for trials in whole},
            **{
                f"{CHECKPOINT}, {more}": ratio(runs, method, against, CHECKPOINT, more)
                for more in whole
                if more > CHECKPOINT
            },
        }
        for method, against in PAIRS
    }
    known = {pair: {trials: one for trials, one in by.items() if one is not None} for pair, by in found.items()}
    return {pair: by for pair, by in known.items() if by}


def ratio(
    runs: Sequence[Mapping[str, Any]], method: str, against: str, trials: int, against_trials: int
) -> tuple[float, float, int] | None:
    """Geometric mean of the ratios of two methods' latencies over the tasks and seeds that both have, its standard
    error as a factor, and the number of tasks. None: they have none in common.
    """

    def logarithms(name: str, number: int) -> dict[tuple[str, int], float]:
        own = [(run, best_s(run, number)) for run in runs if run["method"] == name]
        return {(run["task"], run["seed"]): math.log(best) for run, best in own if best is not None}

    differences: defaultdict[str, list[float]] = defaultdict(list)
    others = logarithms(against, against_trials)
    for (task, seed), own in logarithms(method, trials).items():
        if (other := others.get((task, seed))) is not None:
            differences[task].append(own - other)
    if not differences:
        return None
    means = [statistics.mean(values) for values in differences.values()]
    spread = [statistics.variance(values) / len(values) for values in differences.values() if len(values) > 1]
    error = math.exp(math.sqrt(sum(spread)) / len(spread)) if spread else 0.0
    return math.exp(statistics.mean(means)), error, len(means)


def best_s(run: Mapping[str, Any], trials: int) -> float | None:
    """Return the best latency of a run after a number of trials: as measured again, if it was."""
    if run["trials"] < trials:
        return None
    again = run["again_s"].get(str(trials))
    if again is not None:
        return float(again)
    known = [point[2] for point in run["curve"] if point[0] <= trials]
    return float(known[-1]) if known else None


def sgemm_gflops() -> float:
    """Return the speed of a product on the core that was measured on, the only one left to this process.

    The best of several processes: some of them get bad places for their matrices, and numpy's OpenBLAS takes AVX2
    kernels for processors with AVX-512 that it does not know.
    """
    found = []
    for kernels in ({}, {"OPENBLAS_CORETYPE": "SkylakeX"}) * SGEMM_TRIES:
        done = subprocess.run(
            [sys.executable, "-c", SGEMM], cwd=Path(__file__).parent,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **kernels},
            capture_output=True, check=False, timeout=SGEMM_TIMEOUT_S,
        )  # fmt: skip
        found += [float(done.stdout)] if done.returncode == 0 else []
    return max(found)


def chosen(names: Sequence[str]) -> list[Layer]:
    """The layers of these names or families."""
    known = search_tasks.layers()
    found = [layer for layer in known.values() if "all" in names or layer.name in names or layer.family in names]
    for name in names:
        if name != "all" and not any(name in (layer.name, layer.family) for layer in found):
            raise SystemExit(f"no task {name!r}; there are: {', '.join(known)}")
    return found


def search_for(method: str, args: argparse.Namespace, site: SearchContext, kept: Lessons) -> Search:
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
    if given.pop("space", "") == "wide":
        given |= widened(site)
    found = backend.load(name)
    if not isinstance(found, TvmBackend):
        raise SystemExit(f"backend {name} does not search TVM's schedules")
    made = found.method(option_table.read(name, found.options, given), 1)
    for where, measured in kept.get((method, site.seed), ()):
        made.search(where).update(measured)
    return made.search(site)


def widened(site: SearchContext) -> dict[str, str]:
    """Return the options for all legal values, without a rule of what would be slow.

    But the values of a tile's extents stay: a tile of a thousand vectors cannot be compiled. Raises Unsupported.
    """
    found = template_matching.find(site.workload, site.target)
    if found.template is None:
        raise Unsupported(found.why_not)
    space = found.template.space()
    assert isinstance(space.doubt, Rule), "what would be slow is told of the tile"
    kept = {*space.doubt.names, "parallel"}
    more = {knob.name: list(knob.spare) for knob in space.knobs if knob.spare and knob.name not in kept}
    same = {knob.name: list(knob.values) for knob in space.knobs if knob.name == "parallel"}
    return {"enlarge": json.dumps(more), "knobs": json.dumps(same)}  # who restricts any knob is not told what is slow


def compared(
    place: Place,
    layer: Layer,
    args: argparse.Namespace,
    told: dict[str, Any],
    kept: Lessons,
    rankers: Rankers,
    methods: Sequence[str],
) -> "list[Run]":
    """Add the missing runs of this layer to what is told."""
    stand = Stand(place, layer)
    runs: list[Run] = []
    remembered: dict[str, Made | None] = {}
    for method, seed in missing(layer, args, told, methods):
        try:
            site = replace(stand.site(seed), rankers=rankers if method in RANKED else {})
            search = search_for(method, args, site, kept)
        except Unsupported as error:
            told["skipped"] = sorted({*told["skipped"], f"{layer.name}, {method}: {error}"})
            continue
        if isinstance(search, AutoTvmSearch):
            search.maker = Remembering(search.maker, remembered)
        runs.append(Run(stand, search, site, method.partition("=")[0], args.trials, args.batch))
    while active := [run for run in runs if run.ask()]:
        stand.fill([candidate for run in active for candidate in run.asked])
        for run in active:
            run.answer()
    stand.again([candidate for run in runs for candidate in run.bests.values()])
    new = {name_of(run.told) for run in runs}
    told["runs"] = [*(run for run in told["runs"] if name_of(run) not in new), *(run.ended() for run in runs)]
    for run in runs:
        say(run.told)
    return runs


def missing(
    layer: Layer, args: argparse.Namespace, told: dict[str, Any], methods: Sequence[str]
) -> list[tuple[str, int]]:
    """Methods and seeds that were not run so long."""
    done = {name_of(run) for run in told["runs"] if run["trials"] >= args.trials}
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    every = ((method, seed) for seed in seeds for method in methods)
    return [(method, seed) for method, seed in every if (layer.name, method.partition("=")[0], seed) not in done]


def name_of(run: dict[str, Any]) -> tuple[str, str, int]:
    """Return the key of a run."""
    return run["task"], run["method"], run["seed"]


class Remembering:
    """Applies each configuration once: searches that are compared want the same ones."""

    def __init__(self, maker: Making, known: dict[str, Made | None]) -> None:
        self._maker, self._known = maker, known

    def make(self, config: Config) -> Made | None:
        """As it was made first."""
        text = json.dumps(config)
        if text not in self._known:
            self._known[text] = self._maker.make(config)
        return self._known[text]


class Run:
    """One search, one round after the other."""

    def __init__(self, stand: Stand, search: Search, site: SearchContext, method: str, trials: int, batch: int) -> None:
        self._stand, self._search, self.site, self._batch = stand, search, site, batch
        self.measured: list[tuple[bytes, tuple[float, ...]]] = []
        self.told: dict[str, Any] = {
            "task": stand.layer.name, "family": stand.layer.family, "flops": stand.layer.flops,
            "method": method, "seed": site.seed, "trials": trials, "measured": 0, "failed": 0, "curve": [],
            "latencies_s": [], "stages_s": dict.fromkeys(("select", "build", "profile", "update"), 0.0), "again_s": {},
        }  # fmt: skip
        self.asked: list[bytes] = []
        self.bests: dict[str, bytes] = {}
        """The best at each checkpoint and at the end."""
        self._best: tuple[float, bytes] | None = None
        self._over = False

    def ask(self) -> bool:
        """Let the search select; whether it selected anything."""
        if not self._over:
            with timed(self.told, "select"):
                wanted = min(self._batch, self.told["trials"] - self.told["measured"])
                self.asked = self._search.select(wanted) if wanted else []
            self._over = not self.asked
        return not self._over

    def answer(self) -> None:
        """Tell the search what the table says, and note what that cost when it was measured."""
        told, measured = self.told, []
        for candidate in self.asked:
            entry = self._stand.table[candidate]
            told["measured"] += 1
            told["failed"] += entry.latency_s is None
            told["latencies_s"].append(None if entry.latency_s is None else float(f"{entry.latency_s:.4g}"))
            told["stages_s"]["build"] += entry.build_s
            told["stages_s"]["profile"] += entry.profile_s
            measured.append((candidate, (entry.latency_s,) if entry.latency_s is not None else ()))
            if entry.latency_s is not None and (self._best is None or entry.latency_s < self._best[0]):
                self._best = entry.latency_s, candidate
                told["curve"].append([told["measured"], round(sum(told["stages_s"].values()), 3), entry.latency_s])
            for at in (EARLY, CHECKPOINT, told["trials"]):
                if self._best and told["measured"] <= at <= told["trials"]:
                    self.bests[str(at)] = self._best[1]
        self.asked = []
        self.measured += measured
        with timed(told, "update"):
            self._search.update(measured)

    def ended(self) -> dict[str, Any]:
        """Return the results of the run."""
        self.told["again_s"] = {at: self._stand.table[candidate].again_s for at, candidate in self.bests.items()}
        return self.told


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
