"""Rounds of a task between its stages, and numbers of trials."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import pytest

from autosched.backend import Built, Evaluation, Lease, Measured, Network, WrongSchedule
from autosched.client.plan.task_state import Round
from autosched.client.round_work import Timed
from autosched.client.stage_runner import StageRunner
from autosched.errors import DeviceLost, StepFailed
from autosched.model import DeviceNote, Failure, JobSpec, Purpose, Record, TaskInfo
from bare_backend import BareSession, BareTuner
from deadlines import DEADLINE_S, until

LEASE = Lease("any", ("cpu0",), (), 60.0)
WAIT_S = 0.5


class FakeTuner(BareTuner):
    """Two candidates that measure 1 s; its update fails."""

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        return [b"a", b"b"][:count]

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        return [Built(candidate, code=candidate.hex()) for candidate in candidates]

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        yield from (Measured(one.candidate, (1.0,)) for one in built)

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        raise StepFailed("no luck")


class OldTuner(FakeTuner):
    """Tuner of a backend without comparisons."""

    def restore(self, records: Sequence[Record]) -> None:
        self.restored = [record.number for record in records]


class NewTuner(OldTuner):
    def default(self) -> bytes | None:
        return b""

    def compare(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        yield from (Measured(one.candidate, (2.0,)) for one in built)


class FakeSession(BareSession):
    def import_network(self, lease: Lease) -> Network:
        return Network(tasks=tuple(TaskInfo(task=i, name=f"op{i}", workload=f"w{i}") for i in (1, 2)))

    def tuner(self, task: TaskInfo, seed: int) -> FakeTuner:
        return FakeTuner()


class WatchfulSession(FakeSession):
    """Session whose sentinel returns or raises the given value."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def sentinel(self, lease: Lease) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def searching(trials: int) -> Round:
    """Returns a round of the search that is about to select."""
    return Round(Purpose.TRIAL, "select", trials=trials)


def of(purpose: Purpose, *candidates: bytes) -> Round:
    """Returns a round that selects nothing."""
    return Round(purpose, "build", candidates=candidates)


def made(keep: Callable[[Record], None], count: int) -> tuple[StageRunner, Round, Round]:
    """Returns a worker, and rounds of its two tasks with `count` built candidates each."""
    worker = StageRunner(FakeSession(), JobSpec(name="net", model="0" * 64), keep)
    worker.import_network(LEASE, [])
    rounds = searching(count), searching(count)
    for task, current in enumerate(rounds, start=1):
        worker.select(task, current, LEASE)
        worker.build(task, current, LEASE)
    return worker, *rounds


def test_a_record_has_the_digest_of_the_code_that_was_measured() -> None:
    records: list[Record] = []
    worker, current, _ = made(records.append, 2)
    worker.profile(1, current, LEASE)
    assert [record.code for record in records] == [b"a".hex(), b"b".hex()]


class Twins(FakeTuner):
    """Candidates whose code is their first letter; those that begin with an f fail. Counts measurements."""

    def __init__(self) -> None:
        self.measured: list[bytes] = []
        self.seconds = 1.0

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        return [b"a1", b"b1", b"a2", b"f1", b"f2", b"x"][:count]

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        return [Built(one, code="" if one == b"x" else one[:1].hex()) for one in candidates]

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        for one in built:
            self.measured.append(one.candidate)
            self.seconds += 1.0
            failure = Failure.RUN_CRASH if one.candidate.startswith(b"f") else None
            yield Measured(one.candidate, () if failure else (self.seconds,), failure)

    def default(self) -> bytes:
        return b"a9"

    compare = profile

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        self.told = list(measured)


class TwinSession(FakeSession):
    def __init__(self) -> None:
        self.only = Twins()

    def tuner(self, task: TaskInfo, seed: int) -> FakeTuner:
        return self.only


def twins(trials: int | None = None, **known: float) -> tuple[StageRunner, Twins, list[Record]]:
    """Returns a runner that knows latencies of some codes, by the letter."""
    records: list[Record] = []
    timed = {letter.encode().hex(): Timed((seconds,), "job 7") for letter, seconds in known.items()}
    session = TwinSession()
    spec = JobSpec(name="net", model="0" * 64, trials=trials)
    runner = StageRunner(session, spec, records.append, None, timed.get)
    runner.import_network(LEASE, [])
    return runner, session.only, records


def test_equal_object_code_is_measured_once_in_a_round() -> None:
    runner, tuner, records = twins()
    current = searching(6)
    runner.select(1, current, LEASE)
    runner.build(1, current, LEASE)
    assert runner.unknown_codes(current) == [letter.hex() for letter in (b"a", b"b", b"f")]
    numbers: list[int] = []
    runner.profile(1, current, LEASE, numbers=numbers)
    assert tuner.measured == [b"a1", b"b1", b"f1", b"x", b"f2"], "of what failed, the twin is measured itself"
    found = {one.candidate: one for one in records}
    assert found[b"a2"].latency_s == found[b"a1"].latency_s
    assert found[b"a2"].detail == "not measured: the same object code as record 0"
    assert [one.candidate for one in records if one.copied] == [b"a2"]
    assert set(numbers) == {one.number for one in records}, "what disturbed the one disturbed both"
    runner.update(1, current, LEASE)
    assert {one.candidate for one in tuner.told} == set(found), "the search learns from all"


def test_object_code_that_another_job_measured_is_not_measured() -> None:
    runner, tuner, records = twins(a=0.5)
    current = searching(3)
    runner.select(1, current, LEASE)
    runner.build(1, current, LEASE)
    assert runner.unknown_codes(current) == [b"b".hex()]
    numbers: list[int] = []
    runner.profile(1, current, LEASE, numbers=numbers)
    assert tuner.measured == [b"b1"]
    copied = {one.candidate: one for one in records if one.copied}
    assert copied.keys() == {b"a1", b"a2"}
    assert all((one.latency_s, one.unit) == ((0.5,), "") for one in copied.values())
    assert copied[b"a1"].detail == "not measured: the same object code as job 7"
    assert set(numbers) == {one.number for one in records if not one.copied}


def test_remeasurements_are_never_skipped() -> None:
    runner, tuner, records = twins(a=0.5)
    current = of(Purpose.AGAIN, b"a1", b"a2")
    runner.build(1, current, LEASE)
    assert runner.unknown_codes(current) == []
    runner.profile(1, current, LEASE)
    assert tuner.measured == [b"a1", b"a2"]
    assert not any(one.copied for one in records)


def test_finals_measure_equal_object_code_once_and_keep_their_order() -> None:
    runner, tuner, records = twins(a=0.5)
    current = of(Purpose.FINAL, b"a1", b"b1", b"a2")
    runner.build(1, current, LEASE)
    runner.profile(1, current, LEASE)
    assert tuner.measured == [b"a1", b"b1"]
    assert [(one.candidate, one.purpose) for one in records] == [
        (b"a1", Purpose.FINAL), (b"b1", Purpose.FINAL), (b"a2", Purpose.FINAL), (b"a9", Purpose.DEFAULT),
    ]  # fmt: skip
    assert records[0].latency_s == records[2].latency_s == records[3].latency_s


@pytest.mark.parametrize(("known", "measured"), [({"a": 0.5, "b": 0.7}, []), ({"a": 0.5}, [b"a1", b"b1"])])
def test_finals_of_a_job_without_trials_need_no_measurement_where_all_code_is_known(
    known: dict[str, float], measured: list[bytes]
) -> None:
    runner, tuner, records = twins(0, **known)
    current = of(Purpose.FINAL, b"a1", b"b1")
    runner.build(1, current, LEASE)
    runner.profile(1, current, LEASE)
    assert tuner.measured == measured
    assert [one.purpose for one in records] == [Purpose.FINAL, Purpose.FINAL, Purpose.DEFAULT]
    assert measured or [one.latency_s for one in records] == [(0.5,), (0.7,), (0.5,)]


def test_records_of_two_devices_are_handed_on_in_the_order_of_their_numbers() -> None:
    handed: list[int] = []

    def keep(record: Record) -> None:
        if record.task == 1:  # delayed here, while the other device has a result as well
            other.start()
            other.join(WAIT_S)
        handed.append(record.number)

    worker, first, second = made(keep, 1)
    other = threading.Thread(target=worker.profile, args=(2, second, LEASE))
    worker.profile(1, first, LEASE)
    other.join()
    assert handed == [0, 1]


class ManyTuner(FakeTuner):
    """Each device waits for a test before it measures."""

    def __init__(self) -> None:
        self.turns = {"cpu0": threading.Semaphore(0), "cpu1": threading.Semaphore(0)}
        self.asked: list[tuple[str, int]] = []
        self.asks = threading.Semaphore(0)
        self.broken: set[bytes] = set()

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        return [bytes([number]) for number in range(count)]

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        self.asked.append((lease.units[0], len(built)))
        self.asks.release()
        for one in built:
            assert self.turns[lease.units[0]].acquire(timeout=DEADLINE_S)
            if one.candidate in self.broken:
                raise StepFailed("the device is gone")
            yield Measured(one.candidate, (1.0,))


class Shared:
    """A round of 16 candidates that two devices share."""

    def __init__(self, devices: int = 2) -> None:
        self.tuner, self.records = ManyTuner(), list[Record]()

        class Of(FakeSession):
            def tuner(of, task: TaskInfo, seed: int) -> FakeTuner:
                return self.tuner

        self.runner = StageRunner(Of(), JobSpec(name="net", model="0" * 64), self.records.append)
        self.runner.devices = devices
        self.runner.import_network(LEASE, [])
        self.current = searching(16)
        self.runner.select(1, self.current, LEASE)
        self.runner.build(1, self.current, LEASE)
        self.numbers: dict[str, list[int]] = {"cpu0": [], "cpu1": []}
        self.failed: list[str] = []

    def begin(self, device: str) -> threading.Thread:
        """Starts a step on the device; returns once it has requested its first builds, or ended."""
        lease = Lease("profile", (device,), (), 60.0)

        def run() -> None:
            try:
                self.runner.profile(1, self.current, lease, None, self.numbers[device])
            except StepFailed:
                self.failed.append(device)
            self.tuner.asks.release()

        thread = threading.Thread(target=run)
        thread.start()
        assert self.tuner.asks.acquire(timeout=DEADLINE_S)
        return thread

    def measure(self, device: str, count: int) -> None:
        """Lets a device measure a number of builds."""
        for _ in range(count):
            before = len(self.records)
            self.tuner.turns[device].release()
            until(lambda: len(self.records) > before, "a record is made")  # noqa: B023 - it is called at once

    def ended(self, *threads: threading.Thread) -> None:
        """Lets all devices measure to the end."""
        for turns in self.tuner.turns.values():
            turns.release(100)
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        found = [record.candidate for record in self.records]
        assert sorted(found) == [bytes([number]) for number in range(16)], "each is measured, once"
        assert [record.number for record in self.records] == list(range(16))
        assert [one.candidate for one in self.current.measured] == found, "the search hears of them in their order"
        for device, numbers in self.numbers.items():
            assert numbers == [record.number for record in self.records if record.unit == device]


def test_the_faster_of_two_devices_measures_more() -> None:
    shared = Shared()
    first = shared.begin("cpu0")
    second = shared.begin("cpu1")
    shared.measure("cpu1", 4)
    shared.ended(second, first)
    assert shared.tuner.asked[:3] == [("cpu0", 4), ("cpu1", 3), ("cpu1", 3)]


def test_a_single_device_measures_all() -> None:
    shared = Shared(devices=1)
    shared.ended(shared.begin("cpu0"))
    assert shared.tuner.asked == [("cpu0", 16)]


def test_a_device_that_joins_too_late_has_no_work() -> None:
    shared = Shared(devices=1)
    first, second = shared.begin("cpu0"), shared.begin("cpu1")
    second.join(DEADLINE_S)
    assert not second.is_alive()
    shared.ended(first)


@pytest.mark.parametrize("fails", ["cpu0", "cpu1"])
def test_candidates_left_by_a_failed_device_are_measured_by_another(fails: str) -> None:
    shared = Shared()
    first, second = shared.begin("cpu0"), shared.begin("cpu1")
    shared.tuner.broken = {bytes([number]) for number in (range(4) if fails == "cpu0" else range(4, 16))}
    shared.tuner.turns[fails].release()
    until(lambda: bool(shared.failed), "it fails")
    shared.tuner.broken.clear()
    shared.ended(first, second)
    assert shared.failed == [fails]


def test_a_failed_update_reports_the_number_of_trials() -> None:
    worker, current, _ = made(lambda _: None, 2)
    worker.profile(1, current, LEASE)
    with pytest.raises(StepFailed):
        worker.update(1, current, LEASE)
    assert current.results == 2


class ComparingSession(FakeSession):
    """Task 1 can have finals; stores the records that it compiles."""

    def __init__(self) -> None:
        self.tuners = {1: NewTuner(), 2: OldTuner()}
        self.compiled: Sequence[Record] = ()

    def tuner(self, task: TaskInfo, seed: int) -> FakeTuner:
        return self.tuners[task.task]

    def compile(self, records: Sequence[Record], lease: Lease) -> None:
        self.compiled = records


def test_finals_are_compared_with_the_default_and_marked() -> None:
    session, kept = ComparingSession(), list[Record]()
    worker = StageRunner(session, JobSpec(name="net", model="0" * 64), kept.append)
    worker.import_network(LEASE, [])
    assert worker.comparable() == [1]
    current = of(Purpose.FINAL, b"a", b"b")
    worker.build(1, current, LEASE)
    numbers: list[int] = []
    worker.profile(1, current, LEASE, numbers=numbers)
    assert [(r.candidate, r.purpose, r.latency_s) for r in kept] == [
        (b"a", Purpose.FINAL, (2.0,)),
        (b"b", Purpose.FINAL, (2.0,)),
        (b"", Purpose.DEFAULT, (2.0,)),
    ]
    assert numbers == [0, 1, 2]


class EqualBuilds(NewTuner):
    """All of its builds have the same object code."""

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        return [Built(candidate, code="c0") for candidate in candidates]


def test_finals_of_equal_object_code_say_whose_latency_they_have() -> None:
    session, kept = ComparingSession(), list[Record]()
    session.tuners[1] = EqualBuilds()
    worker = StageRunner(session, JobSpec(name="net", model="0" * 64), kept.append)
    worker.import_network(LEASE, [])
    current = of(Purpose.FINAL, b"a", b"b")
    worker.build(1, current, LEASE)
    worker.profile(1, current, LEASE, numbers=[])
    assert [(r.candidate, r.latency_s, r.detail, r.copied) for r in kept] == [
        (b"a", (2.0,), "", False),
        (b"b", (2.0,), "not measured: the same object code as record 0", True),
        (b"", (2.0,), "not measured: the same object code as record 0", True),
    ]


def test_remeasurements_are_marked_and_measured_as_usual() -> None:
    kept: list[Record] = []
    worker, _, _ = made(kept.append, 2)
    current = of(Purpose.AGAIN, b"b")
    worker.build(1, current, LEASE)
    worker.profile(1, current, LEASE)
    assert [(r.candidate, r.purpose, r.latency_s) for r in kept] == [(b"b", Purpose.AGAIN, (1.0,))]


def test_tuners_and_compile_get_the_valid_records() -> None:
    session = ComparingSession()
    worker = StageRunner(session, JobSpec(name="net", model="0" * 64), lambda record: None)
    records = [
        Record(task=1, number=0, candidate=b"a", latency_s=(9.0,), disturbed="load"),
        Record(task=1, number=1, candidate=b"a", latency_s=(1.0,), purpose=Purpose.AGAIN),
        Record(task=1, number=2, candidate=b"a", latency_s=(1.1,), purpose=Purpose.FINAL),
        Record(task=1, number=3, candidate=b"", latency_s=(5.0,), purpose=Purpose.DEFAULT),
    ]
    worker.import_network(LEASE, records)
    assert session.tuners[1].restored == [1]
    worker.compile(records, LEASE)
    assert [record.number for record in session.compiled] == [2, 3]


class SilentTuner(FakeTuner):
    """Measures only the first candidate, with an invalid latency."""

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        yield Measured(built[0].candidate, (float("nan"),))


def test_a_candidate_without_a_result_has_failed() -> None:
    class SilentSession(FakeSession):
        def tuner(self, task: TaskInfo, seed: int) -> FakeTuner:
            return SilentTuner()

    kept: list[Record] = []
    worker = StageRunner(SilentSession(), JobSpec(name="net", model="0" * 64), kept.append)
    worker.import_network(LEASE, [])
    current = searching(2)
    worker.select(1, current, LEASE)
    worker.build(1, current, LEASE)
    worker.profile(1, current, LEASE)
    assert [(record.candidate, record.failure) for record in kept] == [
        (b"a", Failure.RUN_ERROR), (b"b", Failure.RUN_ERROR),
    ]  # fmt: skip
    assert [record.detail for record in kept] == [
        "the backend measured nonsense: a latency of nan s",
        "the backend's profile stage said nothing of this candidate",
    ]


def test_a_default_that_is_no_candidate_fails_the_import() -> None:
    class OddTuner(NewTuner):
        def default(self) -> bytes | None:
            return cast(bytes, "default")

    session = ComparingSession()
    session.tuners[1] = OddTuner()
    worker = StageRunner(session, JobSpec(name="net", model="0" * 64), lambda record: None)
    worker.import_network(LEASE, [])
    with pytest.raises(StepFailed, match="a str as a candidate"):
        worker.comparable()


def test_a_schedule_that_was_wrong_in_the_network_becomes_a_failed_record() -> None:
    class WrongSession(FakeSession):
        def evaluate(self, lease: Lease) -> Evaluation:
            wrong = (WrongSchedule(2, b"bad", "wrong in the network"), WrongSchedule(9, b"?", "no such task"))
            return Evaluation((), "the reference", True, 0.0, 1e-5, (0,), "tuned", wrong=wrong)

    kept: list[Record] = []
    worker = StageRunner(WrongSession(), JobSpec(name="net", model="0" * 64), kept.append)
    worker.import_network(LEASE, [])
    worker.evaluate(LEASE)
    assert [(r.task, r.candidate, r.failure, r.purpose) for r in kept] == [
        (2, b"bad", Failure.WRONG_RESULT, Purpose.NETWORK)
    ]


def test_a_candidate_that_ran_at_two_device_losses_is_a_failed_trial() -> None:
    runner, _, records = twins()
    current = searching(3)
    runner.select(1, current, LEASE)
    runner.build(1, current, LEASE)
    current.steps = 1
    runner.blame(1, current, b"b1", "board0", "it ended the session")
    runner.blame(1, current, b"a1", "board0", "it ended the session")
    runner.blame(1, current, b"unknown", "board0", "it ended the session")
    assert not records, "once it may have been the device"
    runner.blame(1, current, b"b1", "board0", "it ended the session")
    (record,) = records
    assert (record.candidate, record.failure, record.unit) == (b"b1", Failure.RUN_CRASH, "board0")
    assert record.detail == "the device was lost 2 times while it ran: it ended the session"
    assert [one.candidate for one in current.measured] == [b"b1"]


def test_in_a_shared_round_another_step_measures_the_candidate_of_a_device_loss() -> None:
    runner, _, records = twins()
    current = searching(3)
    runner.select(1, current, LEASE)
    current.steps = 2
    for _ in range(3):
        runner.blame(1, current, b"b1", "board0", "it ended the session")
    assert not records


@pytest.mark.parametrize(
    ("session", "found"),
    [
        (FakeSession(), None),
        (WatchfulSession(DeviceNote(1.0, 2.0)), DeviceNote(1.0, 2.0)),
        (WatchfulSession(DeviceNote(0.0, 2.0)), None),
        (WatchfulSession(DeviceNote(1.0, 2.0, 0.1)), None),
        (WatchfulSession((1.0, 2.0)), None),
        (WatchfulSession(ValueError("no luck")), None),
    ],
)
def test_a_sentinel_that_fails_costs_no_step(session: FakeSession, found: DeviceNote | None) -> None:
    runner = StageRunner(session, JobSpec(name="net", model="0" * 64), lambda record: None)
    assert runner.sentinel(LEASE) == found


def test_a_sentinel_that_loses_the_board_ends_the_step() -> None:
    with pytest.raises(DeviceLost, match="gone"):
        test_a_sentinel_that_fails_costs_no_step(WatchfulSession(DeviceLost("gone")), None)


class RankingSession(FakeSession):
    """A session whose ranker knows the first task and fails for the second."""

    ranks = True

    def __init__(self) -> None:
        self.rankers: Mapping[str, bytes] = {}

    def take_rankers(self, rankers: Mapping[str, bytes]) -> None:
        self.rankers = rankers
        if b"broken" in rankers.values():
            raise ValueError("broken")

    def first(self, task: TaskInfo, lease: Lease) -> Sequence[bytes]:
        if task.task == 2:
            raise ValueError("no such operator")
        return [b"best", b"second"]


def test_rankers_that_fail_do_not_fail_the_job() -> None:
    session = RankingSession()
    runner = StageRunner(session, JobSpec(name="net", model="0" * 64), lambda _: None)
    runner.take_rankers({"conv2d": b"broken"})
    assert session.rankers == {"conv2d": b"broken"}
    assert runner.first(session.import_network(LEASE).tasks, LEASE) == {1: (b"best", b"second")}
