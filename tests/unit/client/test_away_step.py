"""A step on another host's unit, seen from the client."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from autosched.backend import Built, Lease, Measured
from autosched.client.away_step import PART_BYTES_MAX, PART_CANDIDATES_MAX, AwayStep, AwayTuner, HelperLost
from autosched.client.daemon_session import DaemonSession
from autosched.client.moved_builds import MovedBuilds
from autosched.errors import StepFailed
from autosched.model import DeviceNote, TaskInfo
from autosched.protocol import MovedBuild, PartResult, RunElsewhere, Work

TASK = TaskInfo(task=1, name="op", workload="0")
LEASE = Lease("build", ("host/0@lab2",), (), 10.0)


def done(order: RunElsewhere) -> PartResult:
    builds = tuple(MovedBuild(one) for one in order.candidates)
    measured = tuple(Measured(one.candidate, (1e-3,)) for one in order.builds)
    return PartResult(builds, measured, DeviceNote(1e-3, 2e-3, 0.5, 1.0), worked_s=2.0)


class Helper:
    """A helper that answers each part at once."""

    def __init__(self, folder: Path, answer: Callable[[RunElsewhere], PartResult] = done) -> None:
        self.orders: list[RunElsewhere] = []
        self._folder, self._answer = folder, answer
        self.step: AwayStep

    async def run(self, order: RunElsewhere) -> PartResult:
        self.orders.append(order)
        return self._answer(order)

    def with_tuner(self, work: Callable[[AwayTuner], Any], *, sentinel: bool = False) -> Any:
        """Returns the result of work in the step's thread."""

        async def threaded() -> Any:
            builds = MovedBuilds(cast(DaemonSession, None), self._folder)
            self.step = AwayStep(7, builds, self.run, sentinel=sentinel)
            return await asyncio.to_thread(lambda: work(self.step.tuner(TASK)))

        return asyncio.run(threaded())


def test_each_part_has_its_number_and_only_the_first_runs_the_sentinel(tmp_path: Path) -> None:
    helper = Helper(tmp_path)
    candidates = [b"%d" % number for number in range(2 * PART_CANDIDATES_MAX + 1)]
    built = helper.with_tuner(lambda tuner: tuner.build(candidates, LEASE), sentinel=True)
    assert [one.candidate for one in built] == candidates
    assert [(one.step, one.part, one.work, one.sentinel) for one in helper.orders] == [
        (7, 0, Work.BUILD, True), (7, 1, Work.BUILD, False), (7, 2, Work.BUILD, False),
    ]  # fmt: skip
    assert helper.step.worked_s == 6.0
    assert helper.step.device == DeviceNote(1e-3, 2e-3, 1.5, 3.0)


def test_a_part_fits_into_a_frame(tmp_path: Path) -> None:
    helper = Helper(tmp_path)
    large = [bytes([number]) * 60_000 for number in range(5)]
    helper.with_tuner(lambda tuner: tuner.build(large, LEASE))
    assert [len(one.candidates) for one in helper.orders] == [2, 2, 1]
    assert all(sum(map(len, one.candidates)) <= PART_BYTES_MAX for one in helper.orders)


def test_candidates_that_are_compared_stay_together(tmp_path: Path) -> None:
    helper = Helper(tmp_path)
    builts = [Built(bytes([number]) * 60_000) for number in range(5)]
    assert len(helper.with_tuner(lambda tuner: list(tuner.compare(builts, LEASE)))) == 5
    assert [one.work for one in helper.orders] == [Work.COMPARE]


def test_measurements_before_a_failure_count(tmp_path: Path) -> None:
    def fails(order: RunElsewhere) -> PartResult:
        return PartResult(measured=(Measured(b"a", (1e-3,)),), error="StepFailed: it took too long")

    found: list[Measured] = []
    with pytest.raises(StepFailed, match="it took too long"):
        Helper(tmp_path, fails).with_tuner(lambda tuner: found.extend(tuner.profile([Built(b"a"), Built(b"b")], LEASE)))
    assert [one.candidate for one in found] == [b"a"]


def test_a_lost_helper_is_another_error_than_a_failed_stage(tmp_path: Path) -> None:
    with pytest.raises(HelperLost, match="the helper on lab2 is gone"):
        Helper(tmp_path, lambda order: PartResult(lost="the helper on lab2 is gone")).with_tuner(
            lambda tuner: tuner.build([b"a"], LEASE)
        )
