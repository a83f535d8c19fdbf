"""One synthetic network: stages that sleep, and candidates with a known latency each."""

import json
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path

from msgspec import structs

from autosched import file_names
from autosched.backend import Baseline, Built, Evaluation, Lease, Measured, Network, Session, Timing, Tuner
from autosched.errors import ModelRejected, StepFailed
from autosched.model import NETWORK_TASK, Failure, Identity, JobSpec, Record, TaskIndex, TaskInfo, code_name, encode
from autosched_backend_mock.faults import Fault, Faults
from autosched_backend_mock.options import Options
from autosched_backend_mock.time_sources import Clock

CHOICES = 1_000
"""Number of candidates per task: the numbers from 0 to CHOICES - 1, in an order of quality shuffled by the seed."""
MEASUREMENT = "mock 1"
DEFAULT_S = 1.2e-3
"""Latency of an operator without tuning, in seconds."""


class MockSession(Session):
    """One job. Its stages run in separate threads, and `kill` is called from another one."""

    ranks = True

    def __init__(self, job: JobSpec, options: Options, clock: Clock, workdir: Path, outdir: Path) -> None:
        self.options, self.clock = options, clock
        self._job, self._outdir = job, outdir
        self._faults = Faults(options, job.seed, workdir)
        self._network = clock.times.network()
        self._sleeping: dict[int, threading.Event] = {}
        """By the step of the lease."""
        self._best_s: dict[TaskIndex, float] = {}
        self._ranked: tuple[int, ...] = ()
        self.parallel_profile, self.movable = options.divisible, options.movable
        self.compares = options.rival_s > 0
        self.builds = workdir / "builds"
        if options.movable:
            self.builds.mkdir(parents=True, exist_ok=True)

    # Time -------------------------------------------------------------------------------------------------------------

    def round_step(self, task: TaskIndex, stage: str, nth: int, lease: Lease, share: float = 1.0) -> None:
        """Sleep for the time of a step of a round or a share of it, or produce the requested fault."""
        self._spend(task, stage, nth, lease, self._faults.of_step(task, stage), share)

    def _network_step(self, stage: str, lease: Lease) -> None:
        self._spend(NETWORK_TASK, stage, 0, lease, self._faults.of_stage(stage))

    def _spend(self, task: TaskIndex, stage: str, nth: int, lease: Lease, fault: Fault, share: float = 1.0) -> None:
        began_at = time.monotonic()
        if fault is Fault.CRASH:
            os._exit(11)
        seconds = None if fault is Fault.HANG else share * self.clock.seconds(task, stage, nth)
        killed = self._sleeping.setdefault(lease.step, threading.Event())
        try:
            if killed.wait(seconds):
                raise StepFailed(f"{stage} was killed")
        finally:
            del self._sleeping[lease.step]
            self._tell(task, stage, lease, began_at)
        if fault is Fault.FAIL:
            raise StepFailed(f"{stage} failed, as step_fail_ratio asks")

    def _tell(self, task: TaskIndex, stage: str, lease: Lease, began_at: float) -> None:
        """Write one line in one call, so that clients that share the file do not mix their lines."""
        if not self.options.log:
            return
        line = {"task": task, "stage": stage, "units": lease.units, "began_at": began_at, "ended_at": time.monotonic()}
        file = os.open(self.options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, json.dumps(line).encode() + b"\n")
        finally:
            os.close(file)

    def kill(self, lease: Lease | None = None) -> None:
        """End the stage that sleeps under this lease, or all of them, including one that is about to."""
        if lease is None:
            for killed in list(self._sleeping.values()):
                killed.set()
        else:
            self._sleeping.setdefault(lease.step, threading.Event()).set()

    def is_sick(self, lease: Lease) -> bool:
        """Whether every measurement on the device crashes."""
        try:
            return bool(self.options.sick) and lease.units[0] in Path(self.options.sick).read_text().splitlines()
        except FileNotFoundError:
            return False

    # Stages of the network --------------------------------------------------------------------------------------------

    def import_network(self, lease: Lease) -> Network:
        """The network of the times' source."""
        self._network_step("import", lease)
        if self.options.reject:
            raise ModelRejected(self.options.reject)
        identity = Identity(compiler=self.options.compiler, measurement=MEASUREMENT)
        return structs.replace(self._network, identity=identity, tasks_only=self.options.tasks_only)

    def import_tasks(self, lease: Lease) -> Network:
        """The same network on another host."""
        return self.import_network(lease)

    def take_rankers(self, rankers: Mapping[str, bytes]) -> None:
        """Keep the ranker "mock": a JSON list of choices, the best first."""
        self._ranked = tuple(json.loads(rankers.get("mock", b"[]")))

    def first(self, task: TaskInfo, lease: Lease) -> Sequence[bytes]:
        """The choices of the ranker."""
        return [encode([task.task, choice]) for choice in self._ranked]

    def tuner(self, task: TaskInfo, seed: int) -> "MockTuner":
        """The search for one operator."""
        return MockTuner(self, task.task, seed, self._network.batch)

    def compile(self, records: Sequence[Record], lease: Lease) -> None:
        """Store the best candidate of each task."""
        self._network_step("compile", lease)
        for record in records:
            if (best := record.best_s) is not None:
                self._best_s[record.task] = min(best, self._best_s.get(record.task, best))

    def _write(self) -> None:
        text = json.dumps({"inputs": [], "best_s": self._best_s})
        (self._outdir / f"{file_names.made_from(self._job.name)}.json").write_text(text)

    def evaluate(self, lease: Lease) -> Evaluation:
        """Write a module that is a JSON file, and return an evaluation of the known latencies."""
        self._network_step("evaluate", lease)
        tuned = sum(self._best_s.values()) or 1.0
        timings = tuple(
            Timing(name, (value,) * 5, value, value, value)
            for name, value in (("default", 8 * tuned), ("tuned", tuned))
        )
        self._write()
        return Evaluation(
            timings=timings, reference="the landscape", outputs_equal=True, max_abs_error=0.0, tolerance=1e-3,
            cores=lease.cores, published="tuned",
        )  # fmt: skip

    def baseline(self, lease: Lease) -> Baseline:
        """The baseline of the options."""
        self._network_step("baseline", lease)
        rival_s = self.options.rival_s
        return Baseline("the rival", "1.0", "as it is", rival_s, 0.99 * rival_s, 1.01 * rival_s)

    def compile_early(self, records: Sequence[Record], lease: Lease) -> None:
        """Like `compile`."""
        self.compile(records, lease)

    def evaluate_early(self, lease: Lease) -> Evaluation:
        """Write a module if the sum of the operators and the rest is below the baseline's latency."""
        self._network_step("evaluate", lease)
        weights = {info.task: info.weight for info in self._network.tasks}
        ours_s = self.options.rest_s + sum(
            weight * self._best_s.get(task, DEFAULT_S) for task, weight in weights.items()
        )
        faster = ours_s < self.options.rival_s or self._job.names_latency
        if faster:
            self._write()
        timings = tuple(
            Timing(name, (value,) * 5, value, value, value)
            for name, value in (("tuned", ours_s), ("onnxruntime", self.options.rival_s))
        )
        return Evaluation(
            timings=timings, reference="the landscape", outputs_equal=True, max_abs_error=0.0, tolerance=1e-3,
            cores=lease.cores, published="tuned" if faster else "",
        )  # fmt: skip


class MockTuner(Tuner):
    """Tries the numbers in the seed's order; the latency of each depends on task and number only."""

    def __init__(self, session: MockSession, task: TaskIndex, seed: int, batch: int) -> None:
        self._session, self._task, self._batch = session, task, batch
        order = random.Random(f"{seed}/{task}").sample(range(CHOICES), CHOICES)
        self._candidates = [encode([task, choice]) for choice in order]
        self._tried: set[bytes] = set()
        self._rounds = 0
        self._numbers = count()

    def restore(self, records: Sequence[Record]) -> None:
        """Skip recorded candidates; rounds count as full."""
        self._tried.update(record.candidate for record in records)
        self._rounds += -(-len(self._tried) // self._batch)

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        """The next numbers; none after the last round with a known time."""
        rounds_max = self._session.clock.times.rounds(self._task)
        if rounds_max is not None and self._rounds >= rounds_max:
            return ()
        self._step("select", lease)
        return list(islice((c for c in self._candidates if c not in self._tried), count))

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        """Build; some candidates always fail."""
        self._step("build", lease)
        ratio = self._session.options.fail_ratio
        return [
            Built(c, failure=Failure.BUILD_ERROR, detail="made up")
            if c != self.default() and _draw(c, "fail") < ratio
            else Built(c, self._artifact(c), code=code_name(c))
            for c in candidates
        ]

    def _artifact(self, candidate: bytes) -> Path | None:
        """Return a new file that names its candidate; None if builds do not move between hosts."""
        if not self._session.options.movable:
            return None
        path = self._session.builds / f"{self._task}-{next(self._numbers)}"
        path.write_bytes(candidate)
        return path

    def _is_there(self, built: Built) -> bool:
        if not self._session.options.movable:
            return True
        return built.artifact is not None and built.artifact.read_bytes() == built.candidate

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measure: latencies between 0.1 and 1 ms; some candidates always fail."""
        self._step("profile", lease, len(built) / self._batch if self._session.parallel_profile else 1.0)
        options, sick = self._session.options, self._session.is_sick(lease)
        for b in built:
            if b.failure is not None:
                yield Measured(b.candidate, (), b.failure, b.detail)
            elif not self._is_there(b):
                yield Measured(b.candidate, (), Failure.RUN_ERROR, "its build is not here")
            elif sick or _draw(b.candidate, "poison") < options.broken_ratio:
                yield Measured(b.candidate, (), Failure.RUN_CRASH, "made up")
            elif _draw(b.candidate, "run") < options.run_fail_ratio:
                yield Measured(b.candidate, (), Failure.RUN_ERROR, "made up")
            else:
                yield Measured(b.candidate, (_latency_s(b.candidate),) * 3)

    def default(self) -> bytes | None:
        """Slower than every number; None for sources of times without finals."""
        known = self._session.clock.times.rounds(self._task) is not None
        return encode([self._task]) if self._session.options.finals and not known else None

    def compare(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Like `profile`, without random failures."""
        self._step("profile", lease)
        for b in built:
            latency_s = DEFAULT_S if b.candidate == self.default() else _latency_s(b.candidate)
            if b.failure is None and not self._is_there(b):
                raise StepFailed("a build to compare is not here")
            yield Measured(b.candidate, () if b.failure else (latency_s,) * 6, b.failure, b.detail)

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        """Count a round; repeated measurements make none."""
        self._step("update", lease)
        if not self._tried.issuperset(one.candidate for one in measured):
            self._tried.update(one.candidate for one in measured)
            self._rounds += 1

    def _step(self, stage: str, lease: Lease, share: float = 1.0) -> None:
        self._session.round_step(self._task, stage, self._rounds, lease, share)


def _latency_s(candidate: bytes) -> float:
    return 1e-4 * (1 + 9 * _draw(candidate, "latency"))


def _draw(candidate: bytes, purpose: str) -> float:
    return random.Random(candidate + purpose.encode()).random()
