"""A task and its round: the effects of stages and records."""

import hashlib
from typing import Any

import pytest

from autosched.backend import Measured
from autosched.client.plan.allocation import TaskRounds
from autosched.client.plan.blocked_candidates import BlockedCandidates
from autosched.client.plan.rounds import PastRounds
from autosched.client.plan.task_state import FINALS_MAX, ROUND_STAGES, Round, TaskState
from autosched.model import Failure, Purpose, Record
from autosched.protocol import CandidateBlock

BLOCKED = BlockedCandidates()


def state(*best_s: float | None) -> TaskState:
    return TaskState(TaskRounds(1, weight=1, flops=1.0, best_s=list(best_s)))


def record(candidate: bytes, *, device: str = "cpu0", **fields: Any) -> Record:
    return Record(task=1, number=0, candidate=candidate, unit=device, **fields)


def crash(candidate: bytes, device: str = "cpu0") -> Record:
    return record(candidate, device=device, failure=Failure.RUN_CRASH)


@pytest.mark.parametrize("purpose", ROUND_STAGES)
def test_a_round_goes_through_its_stages_to_its_end(purpose: Purpose) -> None:
    current, seen = Round(purpose, ROUND_STAGES[purpose][0]), [ROUND_STAGES[purpose][0]]
    while current.stage_after:
        current.stage = current.stage_after
        seen.append(current.stage)
    assert tuple(seen) == ROUND_STAGES[purpose]


@pytest.mark.parametrize("stage", ["import", "baseline", "compile", "evaluate"])
def test_a_round_of_the_network_has_one_stage(stage: str) -> None:
    current = Round(Purpose.NETWORK, stage)
    assert (current.stage_after, current.kind, current.is_search) == ("", stage, False)


def test_steps_of_different_length_are_of_different_kinds() -> None:
    kinds = {Round(purpose, "profile").kind for purpose in ROUND_STAGES}
    assert kinds == {"profile", "again profile", "final profile"}


def test_results_of_an_earlier_client_are_not_the_rounds_own() -> None:
    current = Round(Purpose.TRIAL, "update", earlier=2)
    current.measured.extend(Measured(b"a", (1.0,)) for _ in range(5))
    assert current.results == 3


def test_a_failure_on_one_device_is_doubtful_until_more_is_known() -> None:
    task = state()
    for one in (crash(b"a"), crash(b"b"), crash(b"c", "cpu1"), record(b"d", failure=Failure.BUILD_ERROR)):
        task.recorded(one)
    assert task.doubtful(BLOCKED) == ([b"a", b"b"], "cpu0")
    task.recorded(crash(b"a", "cpu1"))
    assert task.doubtful(BLOCKED) == ([b"b"], "cpu0")
    blocked = BlockedCandidates()
    blocked.note([CandidateBlock(1, hashlib.sha256(b"b").hexdigest(), "it crashed twice")])
    assert task.doubtful(blocked) == ([b"c"], "cpu1")


def test_attempts_of_an_earlier_client_are_counted_from_its_records() -> None:
    task = state()
    task.begin(Purpose.AGAIN, [b"a"])
    task.recorded(record(b"a", purpose=Purpose.AGAIN, latency_s=(1.0,)))
    assert task.attempts[b"a"] == 1
    task.round = None
    task.recorded(record(b"a", purpose=Purpose.AGAIN, latency_s=(1.0,)))
    assert task.attempts[b"a"] == 2


def test_a_record_is_tagged_once() -> None:
    task = state()
    task.recorded(record(b"a", latency_s=(1.0,)))
    tagged = task.tagged(0, "load")
    assert tagged is not None
    assert (tagged.disturbed, task.records[0].disturbed, task.shaky) == ("load", "load", True)
    assert task.tagged(0, "load again") is None


@pytest.mark.parametrize(
    ("purpose", "best_s", "rounds", "strikes"),
    [
        (Purpose.TRIAL, 1.0, [2.0, 1.0], 0),
        (Purpose.TRIAL, 3.0, [2.0, 2.0], 0),
        (Purpose.TRIAL, None, [2.0, 2.0], 3),
        (Purpose.AGAIN, 1.0, [1.0], 2),
        (Purpose.AGAIN, None, [2.0], 2),
    ],
)
def test_only_rounds_of_the_search_count_as_rounds(
    purpose: Purpose, best_s: float | None, rounds: list[float], strikes: int
) -> None:
    task = state(2.0)
    task.search.strikes = 2
    task.round = Round(purpose, "update")
    task.learned(best_s)
    assert (task.search.best_s, task.search.strikes) == (rounds, strikes)


def test_an_unfinished_round_counts_with_its_records() -> None:
    task = state(2.0)
    task.half = PastRounds(half=(record(b"a", latency_s=(1.0,)),), missing=3)
    task.give_up_half()
    assert (task.search.best_s, task.half) == ([2.0, 1.0], None)
    task.give_up_half()
    assert task.search.best_s == [2.0, 1.0]


def test_finals_are_wanted_twice_at_most_and_only_where_schedules_can_be_compared() -> None:
    task = state(2.0)
    assert not task.wants_finals, "it can have none"
    task.finals = 0
    for _ in range(FINALS_MAX):
        assert task.wants_finals
        task.begin(Purpose.FINAL, [b"a"])
    assert not task.wants_finals
    fresh = state()
    fresh.finals = 0
    assert not fresh.wants_finals
    fresh.rivals = (b"from elsewhere",)
    assert fresh.wants_finals
    assert fresh.finalists() == [b"from elsewhere"]
