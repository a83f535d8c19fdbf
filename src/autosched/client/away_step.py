"""A step on another host's unit, seen from the client: a helper on that host does a tuner's work, in parts."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from autosched.backend import Built, Lease, Measured
from autosched.client.moved_builds import MovedBuilds
from autosched.errors import StepFailed
from autosched.model import DeviceNote, TaskInfo
from autosched.protocol import PartResult, RunElsewhere, Work

PART_CANDIDATES_MAX = 32
"""Maximum candidates of a part. The answer, with a message for each candidate, must fit a frame."""
PART_BYTES_MAX = 128 * 1024
"""Maximum bytes of a part's candidates, unless the part is one candidate or compares all."""
T = TypeVar("T")


class HelperLost(StepFailed):
    """The helper is lost; its work has to be repeated."""

    def __init__(self, why: str, *, useless: bool) -> None:
        """`useless`: the helper ended by itself without having done anything."""
        super().__init__(why)
        self.useless = useless


class AwayStep:
    """A step that a helper runs. `build`, `profile` and `compare` are called in the step's thread."""

    def __init__(
        self, step: int, builds: MovedBuilds, run: Callable[[RunElsewhere], Awaitable[PartResult]], *, sentinel: bool
    ) -> None:
        """`run` has the helper run a part, and waits for its end."""
        self._step, self._builds, self._run = step, builds, run
        self._sentinel, self._parts = sentinel, 0
        self._loop = asyncio.get_running_loop()
        self.device: DeviceNote | None = None
        """The helper's observation of the device."""
        self.disturbed = ""
        """The cause that disturbed the measurements, in words; empty if none is known."""
        self.worked_s = 0.0
        """Seconds of the work itself, without transfers."""

    def tuner(self, task: TaskInfo) -> "AwayTuner":
        """The task's tuner on the helper."""
        return AwayTuner(self, task)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait, in a thread, for a coroutine in the client's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def run_part(
        self, work: Work, task: TaskInfo, candidates: Sequence[bytes] = (), builts: Sequence[Built] = ()
    ) -> PartResult:
        """Have the helper do a part of the work. Raises HelperLost, or StepFailed with the helper's error."""
        moved = tuple([await self._builds.send(built) for built in builts])
        order = RunElsewhere(
            step=self._step, part=self._parts, work=work, task=task, candidates=tuple(candidates), builds=moved,
            sentinel=self._sentinel and not self._parts,
        )  # fmt: skip
        self._parts += 1
        ended = await self._run(order)
        if ended.lost:
            raise HelperLost(ended.lost, useless=ended.useless)
        self.worked_s += ended.worked_s
        self.device = _together(self.device, ended.device)
        self.disturbed = self.disturbed or ended.disturbed
        return ended

    def came(self, ended: PartResult) -> list[Built]:
        """Convert the candidates that the helper built."""
        return [self._builds.came(moved) for moved in ended.builds]


class AwayTuner:
    """The stages of a tuner that a helper runs."""

    def __init__(self, step: AwayStep, task: TaskInfo) -> None:
        self._step, self._task = step, task

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        """Build each candidate on the helper."""
        found: list[Built] = []
        for some in _in_parts(candidates, len):
            ended = self._step.wait(self._step.run_part(Work.BUILD, self._task, candidates=some))
            _check(ended)
            found += self._step.came(ended)
        return found

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measure each build on the helper."""
        for some in _in_parts(built, lambda one: len(one.candidate)):
            ended = self._step.wait(self._step.run_part(Work.PROFILE, self._task, builts=some))
            yield from ended.measured
            _check(ended)

    def compare(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measure all builds in turns on the helper."""
        ended = self._step.wait(self._step.run_part(Work.COMPARE, self._task, builts=built))
        yield from ended.measured
        _check(ended)


def _check(ended: PartResult) -> None:
    """Raise the error that ended a part."""
    if ended.error:
        raise StepFailed(ended.error)


def _in_parts(items: Sequence[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Split items into parts that each fit a frame."""
    some: list[T] = []
    for item in items:
        if some and (len(some) == PART_CANDIDATES_MAX or sum(map(size, some)) + size(item) > PART_BYTES_MAX):
            yield some
            some = []
        some.append(item)
    if some:
        yield some


def _together(one: DeviceNote | None, other: DeviceNote | None) -> DeviceNote | None:
    """Combine the observations of two parts of a step."""
    if one is None or other is None:
        return one or other
    foreign_s = None if one.foreign_s is None or other.foreign_s is None else one.foreign_s + other.foreign_s
    core_s, memory_s = one.core_s or other.core_s, one.memory_s or other.memory_s
    return DeviceNote(core_s, memory_s, foreign_s, one.watched_s + other.watched_s)
