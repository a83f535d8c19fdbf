"""Builds and measures candidates for a comparison of searches: one core for builds, one for measurements."""

import contextlib
import itertools
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from search_table import Table
from search_tasks import Layer

from autosched.backend import Lease
from autosched.process.forked_workers import WorkerError, Workers, prepare
from autosched_tvm import worker_messages
from autosched_tvm.compile import candidate_build, targets, task_extraction
from autosched_tvm.tuning.search_method import SearchContext

BUILD_TIMEOUT_S = 10.0
REFERENCE_TIMEOUT_S = 300.0
AHEAD_BUILD_S = 0.3
"""Build time in seconds that is recorded for builds in advance on a busy machine."""
DISTURBED_RATIO, DISTURBED_MAX = 1.15, 5
"""Maximum ratio of a group's anchor to its usual time before the group is measured again; maximum number of
repetitions."""
GROUP = 6
"""Number of candidates that are measured in turns with the anchor."""
ONCE = worker_messages.MeasurementPlan(repeat=5, min_repeat_s=0.008)
AGAIN = worker_messages.MeasurementPlan(repeat=9, min_repeat_s=0.04)
AUTOGROUP = Path("/proc/self/autogroup")
URGENT = "-15"
"""Nice value of measuring processes, where Linux shares a core between sessions rather than processes."""


class Bench:
    """Builds or measures on one core, in its own session, so that measurements can have priority."""

    def __init__(self, logs: Path, core: int, *, urgent: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serving, args=(theirs, logs, core, urgent))
        self._process.start()
        theirs.close()

    def call(self, function: str, *what: Any, timeout_s: float, processor_s: float | None = None) -> Any:
        """Returns the worker's answer. Raises a WorkerError."""
        self._line.send((function, what, timeout_s, processor_s))
        fine, answer = self._line.recv()
        if not fine:
            raise WorkerError(answer)
        return answer

    def close(self) -> None:
        """Ends it."""
        self._line.close()
        self._process.join()


def _serving(line: Connection, logs: Path, core: int, urgent: bool) -> None:
    os.setsid()
    with contextlib.suppress(OSError):  # a shared machine, or another system
        AUTOGROUP.write_text(URGENT if urgent else "0")
    os.sched_setaffinity(0, {core})
    prepare(worker_messages.PRELOAD)
    workers = Workers(logs, recycle_after=1_000)
    with contextlib.suppress(EOFError, OSError):  # the caller has ended
        while True:
            function, what, timeout_s, processor_s = line.recv()
            role = "build" if function == worker_messages.BUILD else "profile"
            try:
                lease = Lease(role, (), (core,), timeout_s)
                found = workers.call(role, lease, function, *what, timeout_s=timeout_s, processor_s=processor_s)
                line.send((True, found))
            except WorkerError as error:
                line.send((False, str(error)))
    workers.kill()


class Place:
    """The cores and the workers."""

    def __init__(self, folder: Path, keep: Path, build_core: int | None) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self.folder, self.keep = folder, keep
        self.builder = Bench(folder / "builder", cores[0] if build_core is None else build_core, urgent=False)
        self.gauge = Bench(folder / "gauge", cores[-1], urgent=True)
        os.sched_setaffinity(0, {cores[-1]})  # searches run on the core that measures, but never during measurements
        self.target = targets.resolve("auto", 1)
        self._numbers = itertools.count()

    def close(self) -> None:
        """Ends the processes that measure and build."""
        self.gauge.close()
        self.builder.close()

    def file(self, suffix: str) -> str:
        """Returns a new name."""
        return str(self.folder / f"{next(self._numbers)}{suffix}")


class Stand:
    """One task: its workload, its table, and the way to fill the table."""

    def __init__(self, place: Place, layer: Layer) -> None:
        self._place, self.layer = place, layer
        self.target = candidate_build.load_target(place.target)
        self.workload = layer.workload(self.target)
        self.info = layer.info(self.workload)
        self.table = Table(place.keep, f"{layer.name} {self.info.workload} {place.target}")
        self._task, self._reference = place.file(".json"), place.file(".so")
        self._anchor: str | None = None
        self._usual_s = 0.0
        self._prepared = False

    def site(self, seed: int) -> SearchContext:
        """Returns the task as a search receives it."""
        return SearchContext(self.info, self.workload, self.target, seed, 1)

    def fill(self, candidates: Sequence[bytes]) -> None:
        """Builds and measures the candidates that the table lacks."""
        missing = list({candidate: None for candidate in candidates if candidate not in self.table})
        if missing:
            self._prepare(missing)
            self._measure([candidate for candidate in missing if candidate not in self.table], again=False)

    def again(self, candidates: Sequence[bytes]) -> None:
        """Measures these once more, longer, unless that was done."""
        wanted = [one for one in dict.fromkeys(candidates) if self.table[one].again_s is None]
        if wanted:
            self._prepare(wanted)
            self._measure(wanted, again=True)

    # Inside ------------------------------------------------------------------------------------------------------

    def _prepare(self, candidates: Sequence[bytes]) -> None:
        """Prepares the untuned kernel, whose results are the reference, and the anchor."""
        if not self._prepared:
            place = self._place
            task_extraction.save(self.workload, Path(self._task))
            what = (self._task, place.target, b"", self._reference)
            place.gauge.call(worker_messages.BUILD, *what, timeout_s=REFERENCE_TIMEOUT_S)
            self._prepared = True
        if self._anchor is not None:
            return
        for candidate in [self.table.anchor] if self.table.anchor else candidates:
            artifact, _ = self._build(candidate, between=True)
            if artifact is None or (samples := self._compared([artifact], AGAIN)[0]) is None:
                continue
            self._anchor = artifact
            if self.table.anchor is None:
                self.table.begin(candidate, samples)
            self._usual_s = self.table.anchor_s
            return
        raise SystemExit(f"{self.layer.name}: the anchor cannot be built or measured")

    def _build(self, candidate: bytes, *, between: bool = False) -> tuple[str | None, float]:
        """Returns the artifact, None for a failure, and the seconds of the build. `between`: build on the device's
        core."""
        if (ahead := self.table.artifact(candidate)).exists():
            return str(ahead), AHEAD_BUILD_S
        artifact = self._place.file(".so")
        place, what = self._place, (self._task, self._place.target, candidate, artifact)
        bench = place.gauge if between else place.builder
        started = time.monotonic()
        try:
            bench.call(worker_messages.BUILD, *what, timeout_s=6 * BUILD_TIMEOUT_S, processor_s=BUILD_TIMEOUT_S)
        except WorkerError:
            return None, time.monotonic() - started
        return artifact, time.monotonic() - started

    def _measure(self, candidates: Sequence[bytes], *, again: bool) -> None:
        """Measures candidates. Builds on the host's core run beside the measurements, those on the device's core
        between them."""
        waiting, built = deque(candidates), deque[tuple[bytes, str, float]]()
        left = len(candidates)

        def build_one(*, between: bool) -> bool:
            try:
                candidate = waiting.popleft()
            except IndexError:
                return False
            artifact, took_s = self._build(candidate, between=between)
            built.append((candidate, artifact or "", took_s))
            return True

        helper = threading.Thread(target=_all, args=(lambda: build_one(between=False),))
        helper.start()
        while left:
            group = []
            if len(built) >= min(GROUP, left):
                group = [built.popleft() for _ in range(min(GROUP, left))]
                self._keep(group, again=again)
                left -= len(group)
            elif not build_one(between=True):
                time.sleep(0.002)
        helper.join()

    def _keep(self, group: Sequence[tuple[bytes, str, float]], *, again: bool) -> None:
        """Measures a few candidates in turns with the anchor, and stores the results."""
        assert self._anchor is not None
        works = [one for one in group if one[1]]
        for candidate, _, build_s in (one for one in group if not one[1]):
            self.table.keep(candidate, (), build_s, 0.0, again=again)
        parts = [works] if works else []
        calm = DISTURBED_MAX
        while parts:
            part = parts.pop()
            started = time.monotonic()
            try:
                anchor_s, *found = self._compared([self._anchor, *(artifact for _, artifact, _ in part)],
                                                  AGAIN if again else ONCE)  # fmt: skip
            except WorkerError:
                if len(part) > 1:  # one of them crashes or hangs; alone it does not affect the others
                    parts += [[one] for one in part]
                    continue
                anchor_s, found = (), [None]
            if anchor_s and min(anchor_s) > DISTURBED_RATIO * self._usual_s:
                if calm:
                    parts, calm = [*parts, part], calm - 1
                    continue
                self._usual_s = min(anchor_s)  # this is its present speed
            took_s = (time.monotonic() - started) / len(part)
            for (candidate, artifact, build_s), own_s in zip(part, found, strict=True):
                self.table.keep(candidate, own_s or (), build_s, took_s, again=again)
                if artifact != self._anchor:
                    os.unlink(artifact)

    def _compared(
        self, artifacts: Sequence[str], plan: worker_messages.MeasurementPlan
    ) -> list[tuple[float, ...] | None]:
        """Returns samples in turns; None where the result is wrong. Raises a WorkerError."""
        plan = worker_messages.MeasurementPlan(plan.repeat, plan.min_repeat_s, self.table.best_s)
        gauge, what = self._place.gauge, (self._task, self._reference, list(artifacts), plan)
        gauge.call(worker_messages.READY, self._task, self._reference, timeout_s=REFERENCE_TIMEOUT_S)
        found = gauge.call(worker_messages.COMPARE, *what, timeout_s=20.0 + 2.0 * len(artifacts))
        return [None if isinstance(one, str) else tuple(one) for one in found]


def _all(work: Callable[[], bool]) -> None:
    while work():
        pass
