"""The time limit of a policy: a policy that is slow, sleeps or never returns is stopped, without other effects."""

import asyncio
import signal
import time
from collections.abc import Callable

import pytest
import uvloop

from autosched.core.lifecycles import Key
from autosched.core.policies.policy import INTERLEAVED, POLICIES, Policy
from autosched.core.state import State, Task
from autosched.daemon.policy_time_limit import WALL_FACTOR, LimitedPolicies, PolicyOverran, PolicyTimeLimit
from autosched.model import TaskLoad

LONG_S = 10.0
"""A limit in seconds that no busy machine exceeds."""


def busy(cpu_s: float) -> None:
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        pass


def for_ever() -> None:
    while True:
        pass


def for_ever_and_stubborn() -> None:
    while True:
        try:
            for_ever()
        except Exception:
            continue


@pytest.mark.parametrize("work", [for_ever, for_ever_and_stubborn, lambda: time.sleep(60)])
def test_what_does_not_return_is_stopped(work: Callable[[], None]) -> None:
    started = time.monotonic()
    with pytest.raises(PolicyOverran, match=r"it did not return within 0\.06 s"), PolicyTimeLimit(0.01):
        work()
    assert time.monotonic() - started < 50.0


def test_the_calls_of_one_decision_share_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "autosched.daemon.policy_time_limit.WALL_FACTOR", 1000.0
    )  # the effect of a busy machine is not tested here
    budget = PolicyTimeLimit(0.2)
    for _ in range(3):
        budget.renewed()
        with budget:
            busy(0.11)
    with pytest.raises(PolicyOverran, match=r"a decision took it 0\.\d+ s, and 0\.2 s are allowed"), budget:
        busy(0.11)


def test_what_the_policy_raises_is_left_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), PolicyTimeLimit(LONG_S):
        raise ZeroDivisionError


def test_a_foreign_alarm_is_restored() -> None:
    rung: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    timer = signal.setitimer(signal.ITIMER_REAL, 100.0, 7.0)
    try:
        with PolicyTimeLimit(LONG_S):
            pass
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 90.0 < left <= 100.1
        assert interval == pytest.approx(7.0)
        signal.raise_signal(signal.SIGALRM)
        assert rung == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def test_it_works_on_the_loop_of_the_daemon() -> None:
    async def work() -> None:
        with pytest.raises(PolicyOverran), PolicyTimeLimit(0.01):
            for_ever()
        await asyncio.sleep(0.01 * WALL_FACTOR)  # no alarm comes later

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


def test_policies_of_other_packages_are_stopped_in_each_call_and_ours_are_left_as_they_are() -> None:
    def never(state: State, task: Task) -> bool:
        for_ever()
        return True

    def slow_key(state: State, task: Task) -> Key:
        for_ever()
        return ()

    limited = LimitedPolicies({**POLICIES, "theirs": Policy("theirs", slow_key, never)}, PolicyTimeLimit(0.01))
    assert limited["interleaved"] is INTERLEAVED
    assert list(limited) == [*POLICIES, "theirs"]
    theirs, state, task = limited["theirs"], State(), Task(1, 1, TaskLoad(task=1))
    for call in (theirs.key, theirs.admits):
        assert call is not None
        with pytest.raises(PolicyOverran, match="it did not return"):
            call(state, task)


def test_a_policy_that_holds_nothing_back_is_asked_nothing() -> None:
    limited = LimitedPolicies({"theirs": Policy("theirs", INTERLEAVED.key)}, PolicyTimeLimit(LONG_S))
    assert limited["theirs"].admits is None
    assert limited["theirs"].key(State(), Task(1, 2, TaskLoad(task=2), ready_at=3.0)) == (3.0, 1, 2)
