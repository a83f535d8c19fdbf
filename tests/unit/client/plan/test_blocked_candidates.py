"""A candidate that failed once is tried on another device; a blocked one is not run."""

import hashlib
from collections.abc import Callable, Iterator, Sequence

import pytest

from autosched.backend import Built, Lease, Measured
from autosched.client.plan.blocked_candidates import BlockedCandidates
from autosched.client.plan.job_plan import RETRIED_LEAST, JobPlan
from autosched.client.plan.task_state import Round
from autosched.client.stage_runner import StageRunner
from autosched.model import NETWORK_TASK, Failure, JobLoad, JobSpec, Purpose, Record
from autosched.protocol import CandidateBlock
from unit.client.plan.test_job_plan import course, network, purposes, wants
from unit.client.test_stage_runner import LEASE, FakeSession, NewTuner


def note(task: int, candidate: bytes, reason: str = "run crash on cpu0") -> CandidateBlock:
    return CandidateBlock(task, hashlib.sha256(candidate).hexdigest(), reason)


def record(
    trial: int, candidate: int, device: str, *, good: bool = False, failure: Failure = Failure.RUN_CRASH,
    purpose: Purpose = Purpose.TRIAL,
) -> Record:  # fmt: skip
    return Record(
        task=1, number=trial, candidate=str(candidate).encode(), latency_s=(1e-3,) if good else (),
        failure=None if good else failure, unit=device, purpose=purpose,
    )  # fmt: skip


def after_a_round(devices: Sequence[str], trials: int = 100, failure: Failure = Failure.RUN_CRASH) -> JobPlan:
    """Returns a job of one task whose candidates have failed on these devices, before it learns from that."""
    c = course(trials=trials, devices=2)
    c.imported(network(tasks=1, batch=8), [], finals=())
    c.selected(1, len(devices))
    c.advanced(1)
    for trial, device in enumerate(devices):
        c.recorded(record(trial, trial, device, failure=failure))
    c.advanced(1)
    return c


def avoided(load: JobLoad) -> tuple[str, ...]:
    return next(task.avoid for task in load.tasks if task.task == 1)


def test_failed_candidates_are_tried_again_on_another_device() -> None:
    c = after_a_round(["cpu0"] * RETRIED_LEAST)
    spent = c.spent
    load = c.updated(1, None)
    assert wants(load) == {1: "build"}
    assert (c.current(1).purpose, len(c.current(1).candidates), avoided(load)) == (Purpose.AGAIN, RETRIED_LEAST, ())
    load = c.advanced(1)
    assert (wants(load), avoided(load)) == ({1: "profile"}, ("cpu0",))
    for trial in range(RETRIED_LEAST):
        c.recorded(record(10 + trial, trial, "cpu1", purpose=Purpose.AGAIN))
    c.advanced(1)
    assert wants(c.updated(1, None)) == {1: "select"}, "there is no third time"
    assert c.spent - spent == 8


@pytest.mark.parametrize("failure", [f for f in Failure if "build" in f.value or f is Failure.BLOCKED])
def test_failures_that_no_device_causes_are_final(failure: Failure) -> None:
    c = after_a_round(["cpu0"] * 8, failure=failure)
    assert wants(c.updated(1, None)) == {1: "select"}


def test_few_second_tries_wait_until_there_is_no_other_work() -> None:
    c = after_a_round(["cpu0"], trials=9)
    assert wants(c.updated(1, None)) == {1: "select"}
    c.selected(1, 8)
    c.advanced(1)
    for trial in range(1, 9):
        c.recorded(record(trial, trial, "cpu1", good=True))
    c.advanced(1)
    assert wants(c.updated(1, 1e-3)) == {1: "build"}
    assert c.current(1).candidates == (b"0",)
    c.advanced(1)
    c.recorded(record(9, 0, "cpu1", good=True, purpose=Purpose.AGAIN))
    c.advanced(1)
    assert wants(c.updated(1, 1e-3)) == {NETWORK_TASK: "compile"}


def test_second_tries_of_one_device_go_together() -> None:
    c = after_a_round(["cpu0", "cpu1"] * RETRIED_LEAST)
    c.updated(1, None)
    assert c.current(1).candidates == (b"0", b"2", b"4", b"6")
    assert avoided(c.advanced(1)) == ("cpu0",)


def test_candidates_blocked_meanwhile_are_not_tried_again() -> None:
    c = after_a_round(["cpu0"] * RETRIED_LEAST)
    c.blocked.note([note(1, b"0")])
    c.updated(1, None)
    assert wants(c.load()) == {1: "select"}, "three are too few"


def test_a_round_that_fails_completely_is_tried_a_limited_number_of_times() -> None:
    c = after_a_round(["cpu0"] * 8, trials=8)
    load = c.updated(1, None)
    for _ in range(20):
        if 1 not in purposes(c):
            break
        load = c.failed(1, measured=0, error="profile: no")
    assert wants(load) == {NETWORK_TASK: "compile"}


def test_the_next_client_continues_the_second_tries() -> None:
    records = [record(trial, trial, "cpu0") for trial in range(5)]
    records += [
        record(5, 0, "cpu1", purpose=Purpose.AGAIN),
        record(6, 6, "cpu0", good=True),
        record(7, 7, "cpu1"),
        record(8, 8, "cpu1", good=True),
    ]
    c = course(trials=100, devices=2)
    assert wants(c.imported(network(tasks=1, batch=8), records)) == {1: "build"}
    assert c.current(1).candidates == (b"1", b"2", b"3", b"4")


def test_a_client_that_is_lost_in_between_costs_no_third_try() -> None:
    records = [record(0, 0, "cpu0"), record(1, 0, "cpu1", purpose=Purpose.AGAIN)]
    c = course(trials=1, devices=2)
    assert wants(c.imported(network(tasks=1), records)) == {NETWORK_TASK: "compile"}


def test_second_tries_end_where_a_quarter_of_the_budget_is_used_up() -> None:
    c = after_a_round(["cpu0"] * 8, trials=16)
    c.updated(1, None)
    for trial in range(8):
        c.recorded(record(10 + trial, trial, "cpu1", purpose=Purpose.AGAIN))
    c.advanced(1)
    c.advanced(1)
    c.updated(1, None)
    c.selected(1, 8)
    c.advanced(1)
    for trial in range(8):
        c.recorded(record(20 + trial, 20 + trial, "cpu0"))
    c.advanced(1)
    assert wants(c.updated(1, None)) == {NETWORK_TASK: "compile"}


# Blocks ---------------------------------------------------------------------------------------------------------------


def test_candidates_are_blocked_by_task_and_content_until_unblocked() -> None:
    blocked = BlockedCandidates()
    assert blocked.reason(1, b"x") == ""
    blocked.note([note(1, b"x")])
    assert (blocked.reason(1, b"x"), blocked.reason(2, b"x"), blocked.reason(1, b"y")) == ("run crash on cpu0", "", "")
    blocked.note([note(1, b"x", ""), note(1, b"never", "")])
    assert blocked.reason(1, b"x") == ""


class Watched(NewTuner):
    """Stores the candidates that it was asked to run."""

    def __init__(self) -> None:
        self.built: list[bytes] = []
        self.ran: list[bytes] = []
        self.learned: list[bytes] = []

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        self.built += candidates
        return super().build(candidates, lease)

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        self.ran += [one.candidate for one in built]
        for one in built:
            bad = one.candidate == b"b"
            yield Measured(one.candidate, () if bad else (1.0,), Failure.RUN_CRASH if bad else None)

    def compare(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        self.ran += [one.candidate for one in built]
        return super().compare(built, lease)

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        self.learned += [one.candidate for one in measured]


class WatchedSession(FakeSession):
    def __init__(self) -> None:
        self.tuner_of: dict[int, Watched] = {}

    def tuner(self, task: object, seed: int) -> Watched:
        return self.tuner_of.setdefault(len(self.tuner_of) + 1, Watched())


def at_work() -> tuple[StageRunner, Watched, list[Record], BlockedCandidates]:
    session, kept, blocked = WatchedSession(), list[Record](), BlockedCandidates()
    worker = StageRunner(session, JobSpec(name="net", model="0" * 64), kept.append, blocked)
    worker.import_network(LEASE, [])
    return worker, session.tuner_of[1], kept, blocked


def test_a_blocked_candidate_is_neither_built_nor_run_and_becomes_a_record() -> None:
    worker, tuner, kept, blocked = at_work()
    blocked.note([note(1, b"a", "run crash on cpu0; run crash on cpu1")])
    current = Round(Purpose.TRIAL, "select", trials=2)
    assert worker.select(1, current, LEASE) == 2
    worker.build(1, current, LEASE)
    worker.profile(1, current, LEASE)
    assert (tuner.built, tuner.ran) == ([b"b"], [b"b"])
    assert [(r.candidate, r.failure) for r in kept] == [(b"a", Failure.BLOCKED), (b"b", Failure.RUN_CRASH)]
    assert kept[0].detail == "blocked: run crash on cpu0; run crash on cpu1"
    worker.update(1, current, LEASE)
    assert tuner.learned == [b"a", b"b"], "its search knows, and proposes it no more"


@pytest.mark.parametrize("when", ["before the build", "before the measurement"])
def test_a_round_of_blocked_candidates_does_not_call_the_backend(when: str) -> None:
    worker, tuner, kept, blocked = at_work()
    current = Round(Purpose.TRIAL, "select", trials=2)
    worker.select(1, current, LEASE)

    def happen(now: str) -> None:
        if now == when:
            blocked.note([note(1, b"a"), note(1, b"b")])

    steps: list[tuple[str, Callable[[], None]]] = [
        ("before the build", lambda: worker.build(1, current, LEASE)),
        ("before the measurement", lambda: worker.profile(1, current, LEASE)),
    ]
    for name, step in steps:
        happen(name)
        step()
    assert tuner.ran == []
    assert [r.failure for r in kept] == [Failure.BLOCKED] * 2


def test_finals_continue_without_blocked_candidates_but_never_without_the_default() -> None:
    worker, tuner, kept, blocked = at_work()
    blocked.note([note(1, b"a"), note(1, b"")])
    current = Round(Purpose.FINAL, "build", candidates=[b"a", b"b"])
    worker.build(1, current, LEASE)
    worker.profile(1, current, LEASE)
    assert tuner.ran == [b"b", b""]
    assert [(r.candidate, r.purpose, r.failure) for r in kept] == [
        (b"a", Purpose.FINAL, Failure.BLOCKED), (b"b", Purpose.FINAL, None), (b"", Purpose.DEFAULT, None),
    ]  # fmt: skip


def test_repeated_failures_are_not_learned_from() -> None:
    worker, tuner, _, _ = at_work()
    for candidates in ([b"a", b"b"], [b"b"]):
        current = Round(Purpose.AGAIN, "build", candidates=candidates)
        worker.build(1, current, LEASE)
        worker.profile(1, current, LEASE)
        worker.update(1, current, LEASE)
    assert tuner.learned == [b"a"]
