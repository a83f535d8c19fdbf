"""A backend that measures a fixed set of candidates during a run, and while all other processes are stopped.

It extends `ansor`. Each of its profile steps also measures some of a fixed set, in the process that measures the job's
own candidates: *within* the run, and *alone*, with all other processes of the daemon stopped. Parts of a second lie
between the two, in changing order, so that no drift of the machine separates them. The second measurement alone gives
the noise of the method.

``python thesis_probe.py prepare FOLDER MODEL``  makes the set; ``race``  measures modules side by side.
"""

import argparse
import fcntl
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from autosched.backend import Built, Lease, Measured, Session
from autosched.model import JobSpec, TaskInfo
from autosched_backend_ansor import AnsorBackend
from autosched_tvm.tuning import options
from autosched_tvm.tuning.session import TvmSession
from autosched_tvm.tuning.tuner import TvmTuner
from autosched_tvm.worker_messages import MeasurementPlan

NAME = "ansor-probed"
OPTION = "probe"
FIXED, PROBES, LOCK = "fixed.json", "probes.jsonl", "lock"
ATTEMPTS = 10
CALL_S = 60.0
STOP_S = 0.005
"""Seconds until a signal has reached a process on another core."""
WARM_S = 0.02
"""Seconds until continued processes are as busy as before."""
SET_S = 300.0
SLOW_S = 0.02
"""Maximum seconds of one call of a candidate: a step would consist of a slower one alone."""
ORDERS = tuple(itertools.permutations(("within", "alone", "again")))


class Fixed(Struct, frozen=True):
    """One candidate of the set."""

    task: str
    reference: str
    artifact: str
    name: str


class Probe(Struct, frozen=True):
    """One candidate, measured three times within a second; seconds of one call."""

    candidate: int
    within: float
    alone: float
    again: float


# In the client --------------------------------------------------------------------------------------------------------


class ProbedBackend:
    """The entry point."""

    api = (2, 0)

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> Session:
        """Opens a session as `ansor`; the option `probe` names the folder of the fixed set."""
        given = dict(job.options)
        folder = Path(str(given.pop(OPTION)))
        return ProbedSession(folder, msgspec.structs.replace(job, options=given), model, workdir, outdir, device_cores)


class ProbedSession(TvmSession):
    """Session of a job that also measures the fixed set."""

    def __init__(self, folder: Path, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> None:
        given, ansor = options.read("ansor", AnsorBackend.options, job.options), AnsorBackend()
        super().__init__(job, model, workdir, outdir, device_cores, given, lambda threads: ansor.method(given, threads))
        self._folder = folder
        self._turns = itertools.count(os.getpid())  # jobs begin at different positions of the set

    def tuner(self, task: TaskInfo, seed: int) -> TvmTuner:
        """Returns the search of one task."""
        return ProbedTuner(self.probe, task, self.kernels, self.experience, partial(self.search, task, seed))

    def probe(self, lease: Lease) -> None:
        """Measures the next candidate of the set, on the cores of a profile step."""
        arguments = (str(self._folder), next(self._turns), os.getppid())
        self._workers.call("profile", lease, f"{__name__}:measure", *arguments, timeout_s=CALL_S)


class ProbedTuner(TvmTuner):
    """Tuner that measures one of the fixed set after each of its own candidates."""

    def __init__(self, probe: Callable[[Lease], None], *rest: Any) -> None:
        super().__init__(*rest)
        self._probe = probe

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measures each candidate, and one of the fixed set beside it."""
        for measured in super().profile(built, lease):
            yield measured
            self._probe(lease)


# In the worker that measures ------------------------------------------------------------------------------------------


def measure(folder: str, turn: int, daemon: int) -> None:
    """Measures one candidate within and alone, unless another job does so, which this would stop."""
    from autosched_tvm.device import kernel_profiling

    where = Path(folder)
    fixed = msgspec.json.decode((where / FIXED).read_bytes(), type=list[Fixed])
    chosen, order = turn % len(fixed), ORDERS[turn // len(fixed) % len(ORDERS)]
    one = fixed[chosen]
    kernel_profiling.ready(one.task, one.reference)
    with (where / LOCK).open("w") as lock:
        for _ in range(ATTEMPTS):
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            kernel_profiling.profile(
                one.task, one.reference, one.artifact, MeasurementPlan()
            )  # continue as the load for the other one
        else:
            return
        found: dict[str, float] = {}
        for alone, names in itertools.groupby(order, key=lambda name: name != "within"):
            with halted(daemon) if alone else going_on():
                for name in names:
                    samples = kernel_profiling.profile(one.task, one.reference, one.artifact, MeasurementPlan())
                    found[name] = sorted(samples)[len(samples) // 2]
        with (where / PROBES).open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(Probe(chosen, **found)) + b"\n")


@contextmanager
def halted(daemon: int) -> Iterator[None]:
    """Stops all processes of a daemon except this one."""
    import psutil

    root = psutil.Process(daemon)
    others = [process.pid for process in (*root.children(recursive=True), root) if process.pid != os.getpid()]
    try:
        send(signal.SIGSTOP, others)
        time.sleep(STOP_S)
        yield
    finally:
        send(signal.SIGCONT, others)


@contextmanager
def going_on() -> Iterator[None]:
    """Changes nothing."""
    time.sleep(WARM_S)
    yield


def send(number: signal.Signals, processes: Sequence[int]) -> None:
    """Sends a signal to the processes that still exist."""
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue


# On its own -----------------------------------------------------------------------------------------------------------


def prepare(folder: Path, model: Path, shapes: dict[str, tuple[int, ...]], count: int, cores: dict[str, Any]) -> None:
    """Builds `count` random candidates: half of the task with most arithmetic, half of a pooling, which is bound by
    memory."""
    host, device = (Lease(name, (), tuple(cores[name]), SET_S) for name in ("host", "device"))
    job = JobSpec(name="fixed", model="0" * 64, shapes=shapes)
    session = cast(TvmSession, AnsorBackend().open(job, model, folder / "work", folder / "out", len(device.cores)))
    by_flops = sorted(session.import_network(host).tasks, key=lambda task: -task.flops)
    pool = next((task for task in by_flops if "pool" in task.name), by_flops[1])
    fixed = []
    for task in (by_flops[0], pool):
        built = session.tuner(task, 0).build(session.tuner(task, 0).select(count, host), host)
        good = []
        for one in built:
            if one.artifact is not None:
                latency_s = min(session.kernels.profile(task, one.artifact, None, device))
                good.append((latency_s, str(one.artifact)))
        task_files = session.kernels.task_file(task), str(session.kernels.reference_file(task))
        quick = [artifact for latency_s, artifact in sorted(good) if latency_s <= SLOW_S]
        fixed += [Fixed(*task_files, artifact, task.name) for artifact in quick[: count // 2]]
    session.kill()
    if len(fixed) < 2:
        raise SystemExit(f"only {len(fixed)} candidates of {model} can be measured")
    (folder / FIXED).write_bytes(msgspec.json.encode(fixed))


class Loaded:
    """A module that is measured in this process, without an engine with threads beside it."""

    def __init__(self, path: Path) -> None:
        from autosched_tvm.device.loaded_module import LoadedModule
        from autosched_tvm.generated_inputs import random_inputs

        self.name = str(path)
        self._module = LoadedModule(path)
        self._tensors = self._module.bind(random_inputs(self._module.info.inputs))

    def sample(self, number: int, warm: int) -> float:
        """Returns the mean latency of `number` calls, in seconds, after `warm` unmeasured calls."""
        if warm:
            self._module.sample(self._tensors, warm)
        return self._module.sample(self._tensors, number)


def race(modules: Sequence[Path], budget_s: float) -> list[float]:
    """Returns the median latency of some modules of one network, measured in turns, in seconds."""
    from autosched_tvm.evaluation import engine_benchmark

    found = engine_benchmark.race([Loaded(path) for path in modules], budget_s)
    return [timing.median_s for timing in found.timings]


def main() -> None:
    """Prepares or races, on the cores that the caller names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare")
    one.add_argument("folder", type=Path)
    one.add_argument("model", type=Path)
    one.add_argument("--shapes", type=json.loads, default={})
    one.add_argument("--count", type=int, default=12)
    one.add_argument("--cores", type=json.loads, required=True, help="of host and device")
    two = commands.add_parser("race")
    two.add_argument("modules", type=Path, nargs="+")
    two.add_argument("--budget-s", type=float, default=6.0)
    two.add_argument("--cores", type=json.loads, required=True)
    args = parser.parse_args()
    if args.command == "prepare":
        return prepare(args.folder, args.model, args.shapes, args.count, args.cores)
    os.sched_setaffinity(0, args.cores["device"])
    print(json.dumps(race(args.modules, args.budget_s)))
    return None


if __name__ == "__main__":
    main()
