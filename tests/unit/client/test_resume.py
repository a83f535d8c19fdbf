"""A client that dies is replaced by one with the same results: played without a daemon, with a death after each
record."""

import hashlib
from collections.abc import Iterator, Sequence

import pytest

from autosched.backend import Built, Lease, Measured, Network
from autosched.client.plan.rounds import PastRounds, past
from autosched.client.plan.task_state import Round
from autosched.client.stage_runner import StageRunner
from autosched.errors import StepFailed
from autosched.model import Failure, JobLoad, JobSpec, Purpose, Record, TaskInfo
from bare_backend import BareSession, BareTuner
from told_plan import ToldPlan

LEASE = Lease("any", ("cpu0",), (), 60.0)
BATCH = 4
Found = tuple[int, bytes, tuple[float, ...], str]


class Died(Exception):
    """The client was killed."""


class Learner(BareTuner):
    """A tuner whose selection depends on all measurements, and on the borders between rounds."""

    def __init__(self, task: int) -> None:
        self._known, self._task = hashlib.sha256(b"%d" % task), task

    def restore(self, records: Sequence[Record]) -> None:
        for record in records:
            self._learn(record.candidate, record.latency_s)

    def _learn(self, candidate: bytes, latency_s: Sequence[float]) -> None:
        self._known.update(candidate + repr(tuple(latency_s)).encode())

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        return [hashlib.sha256(self._known.digest() + b"%d" % n).digest()[:6] for n in range(count)]

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        return [Built(c, failure=Failure.BUILD_ERROR) if c[0] < 30 else Built(c) for c in candidates]

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        for one in built:
            yield Measured(one.candidate, () if one.failure else ((one.candidate[0] + 1) * 1e-4,), one.failure)

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        for one in measured:
            self._learn(one.candidate, one.latency_s)


class Forgetful(Learner):
    """A tuner that never selects the same twice, so that no round of an earlier client can be finished."""

    lives = 0

    def __init__(self, task: int) -> None:
        super().__init__(task)
        Forgetful.lives += 1
        self._known.update(b"%d" % Forgetful.lives)


class Clumsy(Learner):
    """A tuner whose first selection fails."""

    fails = True

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        if self.fails:
            self.fails = False
            raise StepFailed("no luck")
        return super().select(count, lease)


class Networks(BareSession):
    """A session whose tasks have one tuner each."""

    def __init__(self, tuner: type[Learner], tasks: int, rounds: int | None) -> None:
        self._tuner, self._tasks, self._rounds = tuner, tasks, rounds

    def import_network(self, lease: Lease) -> Network:
        infos = (TaskInfo(task=i, name=f"op{i}", workload=f"w{i}", flops=1e6 * i) for i in range(1, self._tasks + 1))
        return Network(tasks=tuple(infos), batch=BATCH)

    def tuner(self, task: TaskInfo, seed: int) -> Learner:
        return self._tuner(task.task)


def life(records: list[Record], trials: int, tasks: int, until: int | None, tuner: type[Learner] = Learner) -> None:
    """Plays one client: it continues from these records, and dies when there are `until`."""
    spec = JobSpec(name="net", model="0" * 64, trials=trials)
    plan = ToldPlan(spec, lanes=1, devices=1)

    def keep(record: Record) -> None:
        records.append(record)
        plan.recorded(record)
        if len(records) == until:
            raise Died

    worker = StageRunner(Networks(tuner, tasks, None), spec, keep)
    worker.next_number = len(records)
    waiting: dict[int, str] = {}

    def note(load: JobLoad) -> None:
        for said in load.tasks:
            waiting.pop(said.task, None)
            if said.stage_next and said.stage_done:
                waiting[said.task] = said.stage_next

    network = worker.import_network(LEASE, list(records))
    note(plan.imported(network, list(records)))
    while True:
        task, stage = next(iter(waiting.items()))
        plan.started(task, plan.current(task).stage)
        current = plan.current(task)
        match stage:
            case "select":
                note(plan.selected(task, worker.select(task, current, LEASE)))
            case "build":
                worker.build(task, current, LEASE)
                note(plan.advanced(task))
            case "profile":
                worker.profile(task, current, LEASE)
                note(plan.advanced(task))
            case "update":
                note(plan.updated(task, worker.update(task, current, LEASE)))
            case "compile":
                return


def lives(trials: int, tasks: int, deaths: Sequence[int], tuner: type[Learner] = Learner) -> list[Record]:
    """Returns all records of a job whose clients die after these numbers of records."""
    records: list[Record] = []
    for until in (*deaths, None):
        try:
            life(records, trials, tasks, until, tuner)
        except Died:
            continue
    return records


def found(records: Sequence[Record]) -> list[Found]:
    assert [record.number for record in records] == list(range(len(records)))
    return [(r.task, r.candidate, r.latency_s, str(r.failure)) for r in records]


@pytest.mark.parametrize("trials", [1, 7, 8, 22])
def test_a_death_after_any_record_changes_nothing(trials: int) -> None:
    undisturbed = found(lives(trials, 1, ()))
    assert len(undisturbed) == trials
    for death in range(1, trials + 1):
        assert found(lives(trials, 1, (death,))) == undisturbed, f"after {death} records"


def test_many_deaths_change_nothing() -> None:
    assert found(lives(22, 1, range(1, 22))) == found(lives(22, 1, ()))


@pytest.mark.parametrize("death", range(1, 40, 3))
def test_with_several_tasks_each_round_is_finished_as_it_was_begun(death: int) -> None:
    """The task of the next round depends on timing; the contents of a round do not."""
    whole, cut = (sorted(found(lives(40, 3, deaths))) for deaths in ((), (death,)))
    assert len(cut) == len(whole) == 40
    for task in (1, 2, 3):
        one, other = ([f[1:] for f in some if f[0] == task] for some in (whole, cut))
        shared = min(len(one), len(other)) // BATCH * BATCH - BATCH
        assert len(set(one) & set(other)) >= shared


def test_a_nondeterministic_backend_loses_no_trial() -> None:
    records = lives(22, 1, (6, 7, 15), Forgetful)
    assert len(found(records)) == 22
    assert len({record.candidate for record in records}) == 22


def test_a_selection_that_fails_after_a_death_forgets_nothing() -> None:
    records: list[Record] = []
    with pytest.raises(Died):
        life(records, 22, 1, BATCH + 2)
    spec = JobSpec(name="net", model="0" * 64, trials=22)
    worker = StageRunner(Networks(Clumsy, 1, None), spec, records.append)
    worker.import_network(LEASE, list(records))
    current = Round(Purpose.TRIAL, "select", trials=2)
    with pytest.raises(StepFailed):
        worker.select(1, current, LEASE)
    assert worker.select(1, current, LEASE) == 2
    assert not {record.candidate for record in records} & set(current.candidates)


def record(trial: int, purpose: Purpose = Purpose.TRIAL) -> Record:
    return Record(task=1, number=trial, candidate=b"%d" % trial, latency_s=(1.0,), purpose=purpose)


@pytest.mark.parametrize(
    ("borrowed", "own", "first", "left", "sizes", "half", "missing"),
    [
        (0, 0, 4, 9, [], 0, 0),
        (0, 3, 4, 9, [], 3, 1),
        (0, 4, 4, 9, [4], 0, 0),
        (0, 3, 2, 9, [2], 1, 3),
        (0, 3, 2, 1, [2], 1, 1),
        (0, 3, 2, 0, [2, 1], 0, 0),
        (0, 3, 99, 9, [], 3, 1),
        (6, 0, 1, 9, [4, 2], 0, 0),
        (6, 1, 1, 9, [4, 2], 1, 3),
        (6, 9, 1, 9, [4, 2, 4, 4], 1, 3),
    ],
)
def test_rounds_are_told_from_records(
    borrowed: int, own: int, first: int, left: int, sizes: list[int], half: int, missing: int
) -> None:
    theirs, ours = [record(n) for n in range(borrowed)], [record(100 + n) for n in range(own)]
    told = past(theirs, ours, BATCH, first, left)
    assert ([len(whole) for whole in told.whole], len(told.half), told.missing) == (sizes, half, missing)
    assert [r for whole in (*told.whole, told.half) for r in whole] == [*theirs, *ours]


def test_finals_do_not_count_as_a_round() -> None:
    assert past([], [record(0), record(1, Purpose.FINAL)], BATCH, 1, 9) == PastRounds(((record(0),),))
