"""The evaluation that the thesis left to be done: what each policy makes of the same jobs on two resources.

``python benchmarks/thesis.py [--quick]`` prints one JSON object, of which ``make bench-thesis`` makes a section of
RESULTS.md and a page. The resources are one host core and one device core. For each set of jobs and each policy a
daemon of its own tunes all jobs, submitted at once:

- total time, what each resource did meanwhile, and how long a step waits for the one before it to be done with;
- the latency of the tuned networks, at the end, those of one job under all policies measured in turns;
- the distortion of measurements, in runs of their own (thesis_probe.py), which therefore disturb no total time.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import thesis_probe
from against_stock import load, own_state
from msgspec import Struct
from thesis_numbers import busiest, causes, geometric, overheads_s, packed, paired, quantile

from autosched import api, config
from autosched.api import on_demand
from autosched.api.connection import Daemon
from autosched.api.result_folder import collect
from autosched.model import HOST_POOL
from autosched.protocol import Done, JobView, Shutdown, Span

HERE = Path(__file__).parent
POLICIES = ("sequential", "stagewise", "synchronous", "interleaved", "predictive")
ALONE = POLICIES[0]
"""Policy under which each job is tuned while no other one runs."""
RUN_S = 900.0
PREPARE_S = 300.0
PROBED = "rnet"


class Wanted(Struct, frozen=True):
    """One job of a set."""

    network: str
    trials: int
    seed: int


def job_sets(trials: int) -> dict[str, tuple[Wanted, ...]]:
    """Returns the job sets. Equal jobs differ by their seed only; unequal ones by network and budget. Two jobs get half
    of the trials of four."""
    half = trials // 2
    return {
        "2 equal": tuple(Wanted("rnet", half, seed) for seed in range(2)),
        "2 unequal": (Wanted("rnet", half, 0), Wanted("magika", half // 2, 0)),
        "4 equal": tuple(Wanted("rnet", trials, seed) for seed in range(4)),
        "4 unequal": (
            Wanted("rnet", trials, 0),
            Wanted("magika", half, 0),
            Wanted("onet", trials, 0),
            Wanted("rnet", half, 1),
        ),
    }


class Ended(Struct):
    """Results of one run."""

    views: list[JobView]
    spans: list[Span]
    modules: list[Path]
    health: str


def main() -> None:
    """Runs everything and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny budgets: whether it works, not how well")
    parser.add_argument("--trials", type=int, help="of an average one of four jobs (default 128)")
    parser.add_argument("--sets", nargs="+", default=list(job_sets(0)), choices=list(job_sets(0)))
    parser.add_argument("--policies", nargs="+", default=POLICIES, choices=POLICIES)
    parser.add_argument("--goal", default="balanced", help="of predictive")
    parser.add_argument("--backend", default="autotvm", help="that the jobs are tuned by")
    distortion = parser.add_mutually_exclusive_group()
    distortion.add_argument("--no-distortion", action="store_true")
    distortion.add_argument("--only-distortion", action="store_true", help="none of the sets")
    parser.add_argument("--keep", type=Path, help="a folder that stays: what was measured there is not measured again")
    args = parser.parse_args()
    args.trials = args.trials or (16 if args.quick else 128)
    if args.quick:
        args.sets = ["2 unequal"]
    if args.only_distortion:
        args.sets = []
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder:
        print(json.dumps(measured(args, args.keep or Path(folder)), indent=1))


def measured(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Runs everything, then measures the networks."""
    folder.mkdir(parents=True, exist_ok=True)
    runs, modules = [], {}
    for name in args.sets:
        wanted = job_sets(args.trials)[name]
        for policy in args.policies:
            place = folder / name.replace(" ", "-") / policy
            run = kept(place, tuned, wanted, policy, args.goal, args.backend)
            say(f"{name}, {policy}: {run['total_s']:.1f} s, {run['over_work']:.3f} of the busiest unit's work")
            modules[name, policy] = run.pop("modules")
            runs.append({"set": name, "policy": policy, **run})
    distortion = {} if args.no_distortion else distorted(args, folder / "probed")
    return {
        "trials": args.trials,
        "goal": args.goal,
        "backend": args.backend,
        "sets": {name: [msgspec.to_builtins(job) for job in job_sets(args.trials)[name]] for name in args.sets},
        "runs": runs,
        "distortion": distortion,
        "latency": latencies(args, modules) if args.sets and ALONE in args.policies else {},
    }


def kept(place: Path, make: Callable[..., dict[str, Any]], *words: Any) -> dict[str, Any]:
    """Returns the file that `make` makes, or has made before; `place` is its working folder."""
    result = place.with_name(f"{place.name}.json")
    if not result.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        result.write_text(json.dumps(make(place, *words)))
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def say(words: str) -> None:
    """Prints progress."""
    print(words, file=sys.stderr, flush=True)


# Runs -----------------------------------------------------------------------------------------------------------------


def tuned(folder: Path, wanted: Sequence[Wanted], policy: str, goal: str, backend: str) -> dict[str, Any]:
    """Runs one set."""
    return told(wanted, asyncio.run(tune(folder, wanted, policy, goal, backend)))


async def tune(folder: Path, wanted: Sequence[Wanted], policy: str, goal: str, backend: str, **options: str) -> Ended:
    """Runs all jobs at once with a private daemon. `options`: of the backend."""
    with own_state(folder):
        settings = folder / "autosched.toml"
        settings.write_text(
            f'[scheduler]\npolicy = "{policy}"\ngoal = "{goal}"\n'
            f"allow_interference = {str(policy == 'synchronous').lower()}\n"
        )
        async with on_demand.connected(None, serve=("-c", str(settings))) as daemon, asyncio.timeout(RUN_S):
            try:
                return await _run(daemon, wanted, folder, backend, options)
            finally:
                await daemon.link.call(Shutdown(), Done)


async def _run(daemon: Daemon, wanted: Sequence[Wanted], folder: Path, backend: str, options: dict[str, str]) -> Ended:
    models = [load(one.network) for one in wanted]
    jobs = [
        await api.submit(
            daemon, model, api.Settings(fresh=True, trials=one.trials, seed=one.seed, backend=backend, options=options)
        )
        for one, model in zip(wanted, models, strict=True)
    ]
    views, modules = [], []
    for job in jobs:
        async for view in daemon.follow(job, wait_s=30.0):
            last = view
        if last.failure is not None:
            raise SystemExit(f"job {job} failed: {last.failure.message}")
        views.append(last)
    spans = [span for span in await daemon.spans() if span.ended_at is not None]
    health = next(unit.health for unit in await daemon.units() if not unit.unit.startswith(f"{HOST_POOL}/"))
    for view in views:
        result = await collect(daemon, view, folder / f"job-{view.job}")
        assert result.module is not None, f"job {view.job} has no module"
        modules.append(result.module)
    return Ended(views, spans, modules, health)


def told(wanted: Sequence[Wanted], ended: Ended) -> dict[str, Any]:
    """Returns the figures of one run. Times in seconds, from the submission of the first job to the end of the last."""
    spans, views = ended.spans, ended.views
    begin = min(view.submitted_at for view in views)
    end = max(view.ended_at or view.now for view in views)
    units = {unit: causes(spans, unit, begin, end) for unit in sorted({u for span in spans for u in span.units})[::-1]}
    most = busiest(units)
    own = [span for span in spans if most in span.units]
    steady_s = max(span.ended_at or 0.0 for span in own) - min(span.started_at for span in own)
    waits_s = {unit: overheads_s(spans, unit) for unit in units}
    return {
        "total_s": end - begin,
        "mean_completion_s": sum((view.ended_at or end) - begin for view in views) / len(views),
        "busiest": most,
        "over_work": (end - begin) / units[most]["working"],
        "steady_over_work": steady_s / units[most]["working"],
        "units": units,
        "overhead_ms": {
            unit: {"count": len(s), **{f"p{q}": 1e3 * quantile(s, q / 100) for q in (50, 99)}}
            for unit, s in {**waits_s, "all": [s for one in waits_s.values() for s in one]}.items()
        },
        "jobs": [
            {
                "network": one.network,
                "seed": one.seed,
                "ended_s": (view.ended_at or end) - begin,
                "trials": view.trials,
                "failed": view.failed,
                "disturbed": view.disturbed_records,
                "failed_steps": view.failed_steps,
            }
            for one, view in zip(wanted, views, strict=True)
        ],
        "health": ended.health,
        "spans": packed(spans, begin),
        "modules": [str(module) for module in ended.modules],
    }


# Distortion -----------------------------------------------------------------------------------------------------------


def distorted(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Runs each policy with jobs that also measure a fixed set of candidates, within the run and alone."""
    folder.mkdir(exist_ok=True)
    _install(folder)
    if not (folder / thesis_probe.FIXED).exists():
        model = load(PROBED)
        child("prepare", str(folder), str(model.path), "--shapes", json.dumps(model.shapes))
    fixed = msgspec.json.decode((folder / thesis_probe.FIXED).read_bytes(), type=list[thesis_probe.Fixed])
    wanted = job_sets(args.trials // 3)["2 equal" if args.quick else "4 equal"]
    policies = {}
    for policy in args.policies:
        policies[policy] = found = kept(folder / policy, probed, wanted, policy, args.goal)
        say(f"distortion, {policy}: {100 * found['within']['bias']:+.2f} % of {found['within']['count']} pairs")
    return {"candidates": [one.name for one in fixed], "jobs": len(wanted), "policies": policies}


def probed(folder: Path, wanted: Sequence[Wanted], policy: str, goal: str) -> dict[str, Any]:
    """Runs one set; the fixed candidates are in the folder above."""
    (folder.parent / thesis_probe.PROBES).unlink(missing_ok=True)
    asyncio.run(tune(folder, wanted, policy, goal, thesis_probe.NAME, **{thesis_probe.OPTION: str(folder.parent)}))
    lines = (folder.parent / thesis_probe.PROBES).read_bytes().splitlines()
    probes = [msgspec.json.decode(line, type=thesis_probe.Probe) for line in lines]
    return {
        "within": msgspec.to_builtins(paired((one.within, one.alone) for one in probes)),
        "again": msgspec.to_builtins(paired((one.again, one.alone) for one in probes)),
        "probes_us": [" ".join(f"{1e6 * s:.3f}" for s in (one.within, one.alone, one.again)) for one in probes],
    }


def _install(folder: Path) -> None:
    """Makes daemon and clients find the backend with the probe."""
    described = folder / "thesis_probe-0.dist-info"
    described.mkdir(exist_ok=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: thesis-probe\nVersion: 0\n")
    (described / "entry_points.txt").write_text(
        f"[autosched.backends]\n{thesis_probe.NAME} = thesis_probe:ProbedBackend\n"
    )
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(HERE), *([before] if before else [])])


# Latency --------------------------------------------------------------------------------------------------------------


def latencies(args: argparse.Namespace, modules: dict[tuple[str, str], list[str]]) -> dict[str, Any]:
    """Measures each job's networks in turns, one per policy, on an idle machine."""
    rows = []
    for name in args.sets:
        for number, job in enumerate(job_sets(args.trials)[name]):
            words = [modules[name, policy][number] for policy in args.policies]
            medians = json.loads(child("race", *words, "--budget-s", "2" if args.quick else "6"))
            found = dict(zip(args.policies, medians, strict=True))
            rows.append({"set": name, "network": job.network, "seed": job.seed, "median_s": found})
    pairs = {p: [(row["median_s"][p], row["median_s"][ALONE]) for row in rows] for p in args.policies if p != ALONE}
    return {"jobs": rows, "against_alone": {p: msgspec.to_builtins(geometric(pairs[p])) for p in pairs}}


def child(*words: str) -> str:
    """Returns the output of a separate process that may use TVM, on the cores that a daemon would use."""
    pools = {pool.name: pool.units[0].cores for pool in config.resources(config.Config()).pools}
    device = next(cores for name, cores in pools.items() if name != HOST_POOL)
    cores = {"host": pools[HOST_POOL], "device": device}
    environment = {**os.environ, "TVM_NUM_THREADS": str(len(device)), "TVM_BIND_THREADS": "0"}
    done = subprocess.run(
        [sys.executable, str(HERE / "thesis_probe.py"), *words, "--cores", json.dumps(cores)],
        stdout=subprocess.PIPE, text=True, check=True, timeout=PREPARE_S, env=environment,
    )  # fmt: skip
    return done.stdout


if __name__ == "__main__":
    main()
