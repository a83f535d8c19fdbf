"""A backend without a compiler: made-up operators with known best latencies and stage times that are slept.

With it the whole system (daemon, clients, scheduling, records, reports) runs where TVM is not installed. Options, all
times in seconds: ``tasks`` (number of operators), ``import_s``, ``select_s``, ``build_s``, ``profile_s``, ``update_s``,
``compile_s``, ``evaluate_s`` (per step), ``fail_ratio`` (share of candidates that fail to build), ``hang_stage`` (a
stage that never ends), ``crash_stage`` (a stage that kills the client), ``reject`` (refuse the model, in these words).
"""

import json
import os
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from autosched.backend import Built, Evaluation, Lease, Measured, Network, Skipped, Timing
from autosched.errors import ModelRejected, RequestError, StepFailed
from autosched.model import Failure, JobSpec, Record, TaskInfo, encode

DEFAULTS: dict[str, bool | int | float | str] = {
    "tasks": 3, "import_s": 0.0, "select_s": 0.0, "build_s": 0.0, "profile_s": 0.0, "update_s": 0.0, "compile_s": 0.0,
    "evaluate_s": 0.0, "fail_ratio": 0.0, "hang_stage": "", "crash_stage": "", "reject": "",
}  # fmt: skip
CHOICES = 1_000
"""Candidates per task: the numbers from 0 to CHOICES - 1, in an order of quality that the seed shuffles."""


class MockBackend:
    """The entry point."""

    api = (1, 0)

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> "MockSession":
        """Check the options."""
        for name in job.options:
            if name not in DEFAULTS:
                raise RequestError(f"backend mock has no option {name!r}; it has: {', '.join(DEFAULTS)}")
        return MockSession(job, {**DEFAULTS, **job.options}, outdir)


class MockSession:
    """One made-up network."""

    def __init__(self, job: JobSpec, options: dict[str, Any], outdir: Path) -> None:
        self._job, self._options, self._outdir = job, options, outdir
        self._killed = threading.Event()
        self._best_s: dict[int, float] = {}

    def spend(self, stage: str) -> None:
        """Take the stage's time, or misbehave as asked."""
        if self._options["crash_stage"] == stage:
            os._exit(11)
        seconds = None if self._options["hang_stage"] == stage else float(self._options.get(f"{stage}_s", 0.0))
        if self._killed.wait(seconds):
            self._killed.clear()
            raise StepFailed(f"{stage} was killed")

    def import_network(self, lease: Lease) -> Network:
        """As many operators as asked for."""
        self.spend("import")
        if self._options["reject"]:
            raise ModelRejected(str(self._options["reject"]))
        tasks = tuple(
            TaskInfo(task=i, name=f"op{i}", workload=f"mock-{i}", weight=1 + i % 3, flops=1e6 * i, shape=f"made up {i}")
            for i in range(1, int(self._options["tasks"]) + 1)
        )
        return Network(tasks=tasks, skipped=(Skipped("reshape", "no arithmetic"),), default_trials=16 * len(tasks))

    def tuner(self, task: TaskInfo, seed: int) -> "MockTuner":
        """The search for one operator."""
        return MockTuner(self, task, seed, float(self._options["fail_ratio"]))

    def compile(self, records: Sequence[Record], lease: Lease) -> None:
        """Remember the best of each task."""
        self.spend("compile")
        for record in records:
            if (best := record.best_s) is not None:
                self._best_s[record.task] = min(best, self._best_s.get(record.task, best))

    def evaluate(self, lease: Lease) -> Evaluation:
        """Leave a module that is a JSON file and an evaluation that says what the landscape says."""
        self.spend("evaluate")
        tuned = sum(self._best_s.values()) or 1.0
        timings = tuple(
            Timing(name, (value,) * 5, value, value, value)
            for name, value in (("default", 8 * tuned), ("tuned", tuned))
        )
        evaluation = Evaluation(
            timings=timings, reference="the landscape", outputs_equal=True, max_abs_error=0.0, tolerance=1e-3,
            cores=lease.cores, published="tuned",
        )  # fmt: skip
        (self._outdir / f"{self._job.name}.json").write_text(json.dumps({"inputs": [], "best_s": self._best_s}))
        (self._outdir / "evaluation.json").write_bytes(_json(evaluation))
        return evaluation

    def kill(self, lease: Lease | None = None) -> None:
        """End the stage that sleeps."""
        self._killed.set()


class MockTuner:
    """Tries the numbers in the seed's order; each has a latency that depends on task and number alone."""

    def __init__(self, session: MockSession, task: TaskInfo, seed: int, fail_ratio: float) -> None:
        self._session, self._task, self._fail_ratio = session, task, fail_ratio
        self._order = random.Random(f"{seed}/{task.task}").sample(range(CHOICES), CHOICES)
        self._tried = 0

    def restore(self, records: Sequence[Record]) -> None:
        """Skip what was tried."""
        self._tried += len(records)

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        """The next numbers."""
        self._session.spend("select")
        chosen = self._order[self._tried : self._tried + count]
        return [encode([self._task.task, choice]) for choice in chosen]

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        """Some fail, always the same ones."""
        self._session.spend("build")
        return [
            Built(c, failure=Failure.BUILD_ERROR, detail="made up") if _draw(c, "fail") < self._fail_ratio else Built(c)
            for c in candidates
        ]

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Latencies between 0.1 and 1 ms."""
        self._session.spend("profile")
        for b in built:
            latency_s = 1e-4 * (1 + 9 * _draw(b.candidate, "latency"))
            yield Measured(b.candidate, () if b.failure else (latency_s,) * 3, b.failure, b.detail)

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        """Count."""
        self._session.spend("update")
        self._tried += len(measured)


def _draw(candidate: bytes, purpose: str) -> float:
    return random.Random(candidate + purpose.encode()).random()


def _json(value: object) -> bytes:
    import msgspec

    return msgspec.json.encode(value)
