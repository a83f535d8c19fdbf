"""Requests of a client about other jobs, and the use of the answers."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from autosched.backend import Network
from autosched.client import shared_knowledge
from autosched.client.daemon_session import DaemonSession
from autosched.client.round_work import Timed
from autosched.client.shared_knowledge import Known, SharedKnowledge
from autosched.model import Identity, JobSpec, Program, TaskInfo
from autosched.network_status import NOTHING_RECALLED, Recalled
from autosched.protocol import (
    AddProgram,
    Done,
    GetKnown,
    GetSimilarJobs,
    GetTimings,
    GetUnknownPrograms,
    KnownSchedule,
    KnownSchedules,
    KnownTiming,
    KnownTimings,
    Method,
    Rankers,
    SimilarJobs,
    UnknownPrograms,
)

SPEC = JobSpec(name="net", model="0" * 64, trials=8)
CONV, DENSE = TaskInfo(task=1, name="conv", workload="aa"), TaskInfo(task=2, name="dense", workload="bb")
NETWORK = Network((CONV, DENSE), default_trials=8, identity=Identity(device="a CPU"))
NOWHERE = Path("unused")
T = TypeVar("T")


class Line:
    """A daemon with known schedules by workload."""

    def __init__(self, known: dict[str, KnownSchedules] | None = None) -> None:
        self._known = known or {}
        self.asked: list[Method] = []
        self.unknown: tuple[str, ...] = ()
        self.silent = False

    async def ask(self, method: Method, kind: type[Any]) -> Any:
        self.asked.append(method)
        if self.silent:
            await asyncio.Event().wait()
        match method:
            case GetKnown(workload=workload):
                return self._known.get(workload, KnownSchedules())
            case GetSimilarJobs():
                return SimilarJobs(())
            case GetTimings():
                return KnownTimings({"c0de": KnownTiming((0.5,), "job 7")})
            case GetUnknownPrograms():
                return UnknownPrograms(self.unknown)
            case AddProgram():
                return Done()
        return Rankers(())


def of(line: Line) -> SharedKnowledge:
    return SharedKnowledge(cast(DaemonSession, line), NOWHERE)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60.0))


def schedule(candidate: bytes, **fields: Any) -> KnownSchedule:
    return KnownSchedule(candidate=candidate, latency_s=(1.0,), **fields)


ENOUGH = KnownSchedules(own=(schedule(b"best", compared=True),), tried=100)


def test_a_fresh_job_asks_nothing() -> None:
    spec, line = JobSpec(name="net", model="0" * 64, fresh=True), Line({"aa": ENOUGH})
    knowledge = of(line)
    assert run(knowledge.recall(spec, NETWORK, (), 0)) == Known(NOTHING_RECALLED)
    assert run(knowledge.find_teachers(spec, NETWORK, NOTHING_RECALLED)) is NOTHING_RECALLED
    assert run(knowledge.rankers(spec, NETWORK, NOTHING_RECALLED)) == {}
    run(knowledge.look_up(spec, NETWORK, ["c0de"]))
    assert (line.asked, knowledge.timings) == ([], {})


def test_known_schedules_are_taken_over_as_records_and_hints() -> None:
    hints = KnownSchedules(hints=(schedule(b"try", elsewhere=1.5),))
    knowledge = of(Line({"aa": ENOUGH, "bb": hints}))
    recalled, records, first = run(knowledge.recall(SPEC, NETWORK, (), 3))
    assert recalled.taken == (1,)
    assert [(record.task, record.number, record.candidate) for record in records] == [(1, 3, b"best")]
    assert first == {2: (b"try",)}
    assert knowledge.elsewhere == {1: {}, 2: {b"try": 1.5}}


def test_a_store_in_trouble_is_asked_once() -> None:
    line = Line({"aa": KnownSchedules(trouble="the server is gone")})
    recalled, records, first = run(of(line).recall(SPEC, NETWORK, (), 0))
    assert (recalled.taken, tuple(records), dict(first)) == ((), (), {})
    assert len(line.asked) == 1


@pytest.mark.parametrize(
    ("own", "taken"), [((1, 2), (2,)), ((), (1,))], ids=["their records are there", "they were lost"]
)
def test_a_resumed_client_uses_what_an_earlier_one_took_over(own: tuple[int, ...], taken: tuple[int, ...]) -> None:
    knowledge = of(Line({"aa": ENOUGH}))
    knowledge.recalled_before = Recalled(taken=(2,))
    recalled, records, _ = run(knowledge.recall(SPEC, NETWORK, own, 0))
    assert recalled.taken == taken
    assert len(records) == (0 if own else 1)


@pytest.mark.parametrize(
    ("taken", "device", "asks"), [((1,), "a CPU", True), ((1, 2), "a CPU", False), ((), "", False)],
    ids=["a task is unknown", "all tasks are known", "the device model is unknown"],
)  # fmt: skip
def test_rankers_are_asked_where_a_task_needs_them(taken: tuple[int, ...], device: str, asks: bool) -> None:
    line = Line()
    network = Network((CONV, DENSE), identity=Identity(device=device))
    assert run(of(line).rankers(SPEC, network, Recalled(taken=taken))) == {}
    assert bool(line.asked) is asks


def test_each_unknown_program_is_sent_once() -> None:
    line = Line()
    line.unknown = ("bb", "cc")
    tasks = [CONV, DENSE, TaskInfo(task=3, name="dense", workload="bb"), TaskInfo(task=4, name="pool", workload="cc")]
    programs = {"bb": Program("text 1", b"dense")}  # the backend has none of the pool
    run(of(line).describe(Network(tuple(tasks)), lambda info: programs.get(info.workload)))
    sent = [method for method in line.asked if isinstance(method, AddProgram)]
    assert [(method.task, method.program.content) for method in sent] == [(DENSE, b"dense")]


def test_a_store_that_does_not_answer_delays_a_job_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_knowledge, "DESCRIBE_S", 0.01)
    line = Line()
    line.silent = True
    run(of(line).describe(NETWORK, lambda info: None))
    assert len(line.asked) == 1


def test_timings_of_equal_code_are_kept_with_their_source() -> None:
    line = Line()
    knowledge = of(line)
    run(knowledge.look_up(SPEC, NETWORK, []))
    assert line.asked == []
    run(knowledge.look_up(SPEC, NETWORK, ["c0de", "beef"]))
    assert knowledge.timings == {"c0de": Timed((0.5,), "job 7")}
