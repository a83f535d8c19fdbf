"""A client at its daemon: its requests, reports, and errors."""

import asyncio
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import Struct
from msgspec.structs import replace

from autosched.backend import Earlier, Lease, Network
from autosched.client import daemon_session, job_runner
from autosched.client.daemon_session import DaemonSession
from autosched.client.job_runner import JobRunner
from autosched.client.network_import import first_candidates
from autosched.client.plan.early_builds import ROUNDS_BETWEEN
from autosched.client.stage_runner import StageRunner
from autosched.errors import NotFound
from autosched.model import NETWORK_TASK, JobSpec, Outcome, Record, Step, StepId, TaskInfo
from autosched.network_status import NOTHING_RECALLED, Recalled
from autosched.protocol import (
    AskLoad,
    Done,
    EarlierJob,
    EndStep,
    GetBlob,
    GetKnown,
    GetOrder,
    GetRankers,
    GetRecords,
    GetSimilarJobs,
    GetTimings,
    GetUnknownPrograms,
    Heartbeat,
    JobOrder,
    KnownSchedules,
    KnownTimings,
    Method,
    PlanNetwork,
    Rankers,
    RecordPage,
    ReportStatus,
    Return,
    RevokeStep,
    SimilarJobs,
    StartStep,
    UnknownPrograms,
)
from autosched.wire.link import Link
from autosched_backend_mock.session import MockSession, MockTuner
from deadlines import DEADLINE_S


class Told:
    """A connection that stores its messages."""

    closed = False

    def __init__(self) -> None:
        self.told: list[Method] = []

    async def keep_alive(self, ask: Method, every_s: float, silence_s: float) -> None:
        while True:
            self.told.append(ask)
            await asyncio.sleep(every_s)


def test_a_busy_step_does_not_silence_the_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_session, "HEARTBEAT_S", 0.01)

    speaking, link = DaemonSession("unix:/nowhere", OWN, ""), Told()

    def busy() -> None:
        """The worst kind of step: it never waits, and holds the interpreter as long as possible."""
        until = time.monotonic() + DEADLINE_S
        while link.told.count(Heartbeat()) < 3:
            assert time.monotonic() < until, "the heart does not beat"

    async def work() -> None:
        speaking._link = cast(Link, link)
        beat = asyncio.ensure_future(speaking.beat())
        await JobRunner(tmp_path, speaking)._in_thread(Lease("build", ("host/0",), (), 10.0), busy)
        beat.cancel()

    asyncio.run(work())


OWN, OTHER = 2, 1
MODEL = b"any bytes"


KNOWS_NOTHING: dict[type[Method], Struct] = {
    GetKnown: KnownSchedules(),
    GetRankers: Rankers(),
    GetTimings: KnownTimings({}),
    GetUnknownPrograms: UnknownPrograms(()),
}
"""Answers of an empty record store."""


class FakeDaemon:
    """Has an order and records for the client; the trial numbers have a gap."""

    closed = False

    def __init__(
        self,
        trials: dict[int, list[int]],
        *,
        earlier: Sequence[EarlierJob] = (),
        similar: Sequence[EarlierJob] = (),
        **options: bool | int | float | str,
    ) -> None:
        self._trials, self._options, self._earlier = trials, options, tuple(earlier)
        self._similar, self.asked_similar = tuple(similar), 0
        self.ends: list[EndStep] = []
        self.ended, self.planned, self.takes_plans = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.takes_plans.set()

    async def call(self, method: Method, kind: type[Struct], *, timeout_s: float = 1.0) -> Struct:
        if isinstance(method, GetOrder):
            spec = JobSpec(
                name="net",
                model=hashlib.sha256(MODEL).hexdigest(),
                backend="mock",
                records_from=OTHER,
                options=self._options,
            )
            return JobOrder(
                job=OWN, spec=spec, network=None, records=0, lanes=1, devices=1, device_cores=1, earlier=self._earlier
            )
        if isinstance(method, GetSimilarJobs):
            self.asked_similar += 1
            return SimilarJobs(self._similar)
        if isinstance(method, GetBlob):
            raise NotFound("no blob")
        if type(method) in KNOWS_NOTHING:
            return KNOWS_NOTHING[type(method)]
        if isinstance(method, PlanNetwork | ReportStatus):
            self.planned.set()
            await self.takes_plans.wait()
        if isinstance(method, EndStep | PlanNetwork | ReportStatus):
            self.ends += [method] if isinstance(method, EndStep) else []
            if self.ends:
                self.ended.set()
            return Done()
        assert isinstance(method, GetRecords)
        found = (Record(task=1, number=trial, candidate=b"") for trial in self._trials[method.job])
        return RecordPage(tuple(found), False)


async def begun(folder: Path, trials: dict[int, list[int]], daemon: FakeDaemon | None = None) -> JobRunner:
    (folder / "model").mkdir()
    (folder / "model/net.onnx").write_bytes(MODEL)
    begun = JobRunner(folder, open_to(daemon or FakeDaemon(trials)))
    await begun.begin()
    return begun


def open_to(daemon: object) -> DaemonSession:
    """Returns a session whose connection is this object."""
    opened = DaemonSession("unix:/nowhere", OWN, "")
    opened._link = cast(Link, daemon)
    opened._open.set()
    return opened


def test_trial_numbers_continue_after_the_last_of_the_job(tmp_path: Path) -> None:
    made = asyncio.run(begun(tmp_path, {OTHER: [0, 1, 2], OWN: [0, 1, 5]}))
    assert made._runner is not None
    assert (made._runner.next_number, made._past.borrowed, len(made._past.records)) == (6, 3, 6)


EARLIER = EarlierJob(3, JobSpec(name="before", model=hashlib.sha256(MODEL).hexdigest()), {1: "00ff"})
PRUNED = EarlierJob(4, JobSpec(name="pruned", model="f" * 64), {})


def test_records_of_earlier_jobs_reach_the_backend_before_its_tuners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    tuner = MockSession.tuner

    def made_after(session: MockSession, task: TaskInfo, seed: int) -> MockTuner:
        seen.append(task.task)
        return tuner(session, task, seed)

    monkeypatch.setattr(MockSession, "learns", True)
    monkeypatch.setattr(MockSession, "learn", lambda _, earlier, lease: seen.extend(earlier))
    monkeypatch.setattr(MockSession, "tuner", made_after)
    (tmp_path / "earlier/3").mkdir(parents=True)
    (tmp_path / "earlier/3/before.onnx").write_bytes(MODEL)

    async def imported() -> None:
        daemon = FakeDaemon({OTHER: [], OWN: [], 3: [0, 1]}, earlier=[EARLIER], tasks=1)
        made = await begun(tmp_path, {}, daemon)
        assert made._runner is not None
        made._runner.import_network(Lease("import", ("host/0",), (), 10.0), [], 0, made._shared.teachers)

    asyncio.run(imported())
    (one, task) = seen
    assert isinstance(one, Earlier)
    assert (one.job, one.workloads, one.model) == (3, {1: "00ff"}, tmp_path / "earlier/3/before.onnx")
    assert [record.number for record in one.records] == [1], "one record of each candidate"
    assert task == 1


@pytest.mark.parametrize(
    ("fields", "teachers"),
    [
        ({}, (3,)),
        ({"trials": 0}, ()),
        ({"fresh": True}, None),
        ({"learn_from": (1,)}, None),
        ({"records_from": OTHER}, None),
    ],
    ids=["by default", "no search", "fresh", "named by the user", "records of another job"],
)
def test_a_job_learns_from_similar_ones_by_default(
    fields: dict[str, Any], teachers: tuple[int, ...] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`teachers`: jobs that the client takes; None: the client does not ask the daemon."""
    (tmp_path / "earlier/3").mkdir(parents=True)
    (tmp_path / "earlier/3/before.onnx").write_bytes(MODEL)
    network = Network((TaskInfo(task=1, name="conv", workload="00ff"),), default_trials=8)

    async def found() -> JobRunner:
        daemon = FakeDaemon({OTHER: [], OWN: [], 3: [0, 1]}, similar=[EARLIER, PRUNED])
        made = await begun(tmp_path, {}, daemon)
        spec = JobSpec(name="net", model="0" * 64, **fields)
        told = await made._shared.find_teachers(spec, network, NOTHING_RECALLED)
        assert told.teachers == (teachers or ())
        assert daemon.asked_similar == (1 if teachers else 0)
        return made

    assert [one.job for one in asyncio.run(found())._shared.teachers] == list(teachers or ())


def test_a_replaced_client_learns_from_the_same_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network((TaskInfo(task=1, name="conv", workload="00ff"),), default_trials=8)

    async def found() -> None:
        daemon = FakeDaemon({OTHER: [], OWN: []}, similar=[EARLIER])
        made = await begun(tmp_path, {}, daemon)
        made._shared.recalled_before = Recalled(teachers=(7,))
        told = await made._shared.find_teachers(JobSpec(name="net", model="0" * 64), network, NOTHING_RECALLED)
        assert (told.teachers, daemon.asked_similar) == ((7,), 0)

    asyncio.run(found())


@pytest.mark.parametrize(
    ("known", "first"),
    [((), {1: (b"best",), 2: (b"",)}), ((1,), {2: (b"",)}), ((1, 2), {})],
    ids=["nothing known", "one known", "all known"],
)
def test_without_trials_ranked_schedules_and_their_competitors_are_compared(
    known: tuple[int, ...], first: dict[int, tuple[bytes, ...]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The second task competes with the first, and no ranker knows it."""
    monkeypatch.setattr(MockSession, "first", lambda _, info, lease: [b"best"] if info.task == 1 else [])
    monkeypatch.setattr(StageRunner, "default", lambda *_: b"")
    network = Network(tuple(TaskInfo(task=task, name="conv", workload=f"{task}", groups={"a": 1}) for task in (1, 2)))

    async def found() -> dict[int, tuple[bytes, ...]]:
        made = await begun(tmp_path, {}, FakeDaemon({OTHER: [], OWN: []}))
        assert made._runner is not None
        lease = Lease("import", ("host/0",), (), 10.0)
        return await first_candidates(network, made._runner, known, lease, asyncio.to_thread)

    assert asyncio.run(found()) == first


def test_learning_with_a_backend_that_cannot_learn_fails_at_once(tmp_path: Path) -> None:
    made = asyncio.run(begun(tmp_path, {}, FakeDaemon({OTHER: [], OWN: []}, earlier=[EARLIER])))
    failure = made._plan.result().load().failure
    assert failure is not None
    assert failure.message == "backend 'mock' cannot learn from earlier jobs: submit again without learn_from"


def order(timeout_s: float, number: StepId = 5, stage: str = "import") -> StartStep:
    step = Step(
        id=number, job=OWN, task=NETWORK_TASK, stage=stage, units=("host/0",), started_at=0.0, deadline_at=timeout_s
    )
    return StartStep(step=step, cores=(), timeout_s=timeout_s)


def test_an_overdue_step_is_killed_without_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its daemon may be gone, and the next one relies on an idle device."""
    monkeypatch.setattr(job_runner, "WATCHDOG_S", 0.0)

    async def work() -> None:
        daemon = FakeDaemon({OTHER: [], OWN: []}, hang_stage="import")
        made = await begun(tmp_path, {}, daemon)
        await made.handle(order(timeout_s=0.05))
        assert made.standing() == Return(steps=(5,), load=made._plan.result().load())
        await asyncio.wait_for(daemon.ended.wait(), DEADLINE_S)
        assert [(end.step, end.outcome, "was killed" in end.error) for end in daemon.ends] == [
            (5, Outcome.FAILED, True)
        ]

    asyncio.run(work())


def test_cores_that_do_not_exist_here_are_left_out_of_a_lease(tmp_path: Path) -> None:
    """The daemon of another machine numbers them; a client there once ended with EINVAL."""

    async def work() -> None:
        daemon = FakeDaemon({OTHER: [], OWN: []}, hang_stage="import")
        made = await begun(tmp_path, {}, daemon)
        core = min(os.sched_getaffinity(0))
        await made.handle(replace(order(timeout_s=60.0), cores=(core, 4_000)))
        assert made._leases[5].cores == (core,)
        assert made._leases[5].step == 5
        await made.handle(RevokeStep(step=5, reason="it is over"))
        await asyncio.wait_for(daemon.ended.wait(), DEADLINE_S)

    asyncio.run(work())


def test_a_repeated_request_is_carried_out_once(tmp_path: Path) -> None:
    async def work() -> None:
        daemon = FakeDaemon({OTHER: [], OWN: []})
        made = await begun(tmp_path, {}, daemon)
        assert made.standing() is not None
        for _ in range(2):
            await made.handle(order(timeout_s=20.0))
        assert len(made._running) == 1
        await asyncio.gather(*made._running)
        assert [(end.step, end.outcome) for end in daemon.ends] == [(5, Outcome.DONE)]
        standing = made.standing()
        assert standing is not None
        assert standing.steps == ()

    asyncio.run(work())


def test_an_end_resent_to_a_later_daemon_has_the_current_load(tmp_path: Path) -> None:
    """The client reported its load after the reconnect, and has run other steps: an old load would repeat them."""

    async def work() -> None:
        daemon = FakeDaemon({OTHER: [], OWN: []})
        made = await begun(tmp_path, {}, daemon)
        daemon.takes_plans.clear()
        await made.handle(order(timeout_s=20.0))
        await daemon.planned.wait()
        plan = made._plan.result()
        made._line.returns += 1
        plan.started(1, plan.current(1).stage)
        plan.selected(1, plan.current(1).trials)
        plan.take_changes(1)
        daemon.takes_plans.set()
        await asyncio.wait_for(daemon.ended.wait(), DEADLINE_S)
        await asyncio.gather(*made._running)
        (end,) = daemon.ends
        assert {load.task: load.stage_next for load in end.load.tasks}.get(1, "build") == "build"

    asyncio.run(work())


def test_a_build_that_begins_while_the_last_one_is_reported_is_in_the_load(tmp_path: Path) -> None:
    """Otherwise the load that came last would say that the network waits for nothing: its build would never run."""

    async def work() -> None:
        daemon = FakeDaemon({OTHER: [], OWN: []}, tasks=1, rival_s=1e-3)
        made = await begun(tmp_path, {}, daemon)
        for number, stage in enumerate(("import", "baseline", "compile")):
            await made.handle(order(20.0, number, stage))
            await asyncio.gather(*made._running)
        plan = made._plan.result()
        daemon.planned.clear()
        daemon.takes_plans.clear()
        await made.handle(order(20.0, 3, "evaluate"))
        await asyncio.wait_for(daemon.planned.wait(), DEADLINE_S)
        plan.early.rounds = ROUNDS_BETWEEN
        plan.selected(1, plan.current(1).trials)
        plan.advanced(1)
        plan.advanced(1)
        plan.updated(1, 1e-4)
        daemon.takes_plans.set()
        await asyncio.gather(*made._running)
        last = daemon.ends[-1]
        assert (last.step, last.outcome) == (3, Outcome.DONE)
        assert {load.task: load.stage_next for load in last.load.tasks}[NETWORK_TASK] == "compile"

    asyncio.run(work())


def test_a_request_that_times_out_does_not_end_the_client(tmp_path: Path) -> None:
    """Its connection may be lost while the backend still opens the job."""

    async def work() -> None:
        made = JobRunner(tmp_path, open_to(FakeDaemon({OTHER: [], OWN: []})))
        asked = asyncio.ensure_future(made.handle(AskLoad()))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait({asked})
        assert made.standing() is None
        (tmp_path / "model").mkdir()
        (tmp_path / "model/net.onnx").write_bytes(MODEL)
        await made.begin()
        assert made.standing() is not None

    asyncio.run(work())


def test_a_client_that_has_not_opened_its_job_reports_no_state(tmp_path: Path) -> None:
    async def work() -> None:
        assert JobRunner(tmp_path, DaemonSession("unix:/nowhere", OWN, "")).standing() is None

    asyncio.run(work())
