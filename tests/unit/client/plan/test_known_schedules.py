"""Known schedules in a job: tasks that need no search, and first candidates of the others."""

import pytest

from autosched.backend import Network
from autosched.client.plan.job_plan import JobPlan
from autosched.client.plan.known_schedules import HINTS_MAX, first_hints, recall, unmeasured_competitors
from autosched.model import JobSpec, Purpose, Record, TaskInfo
from autosched.network_status import Recalled
from autosched.protocol import KnownSchedule, KnownSchedules
from autosched.records import record_selection
from autosched.records.task_best import short_digest
from told_plan import ToldPlan
from unit.client.plan.test_job_plan import stages, trials

BATCH = 4


def network(tasks: int = 2) -> Network:
    infos = tuple(TaskInfo(task=n, name=f"op{n}", workload=f"w{n}", flops=1e6) for n in range(1, tasks + 1))
    return Network(tasks=infos, default_trials=16 * tasks, batch=BATCH)


def one(name: str, latency_s: float = 1e-3, *, compared: bool = True) -> KnownSchedule:
    return KnownSchedule(
        candidate=name.encode(), latency_s=(latency_s,), compared=compared, code="ab", measured_at=7.0,
        source=f"job 1, {name}",
    )  # fmt: skip


def known(*names: str, tried: int = 17, compared: bool = True, hints: int = 0) -> KnownSchedules:
    own = tuple(one(name, (1 + n) * 1e-3, compared=compared) for n, name in enumerate(names))
    return KnownSchedules(own, tried, tuple(one(f"h{n}", compared=False) for n in range(hints)))


def test_a_network_that_was_searched_enough_needs_no_search() -> None:
    found = recall(network(), None, {1: known("a", "b"), 2: known("c", hints=2)})
    assert found.recalled.taken == (1, 2)
    assert found.recalled.trials == 32
    assert [(r.task, r.number, r.candidate, r.purpose) for r in found.records] == [
        (1, 0, b"a", Purpose.KNOWN), (1, 1, b"b", Purpose.KNOWN), (2, 2, b"c", Purpose.KNOWN),
    ]  # fmt: skip
    first = found.records[0]
    assert (first.latency_s, first.detail, first.code, first.measured_at) == ((1e-3,), "job 1, a", "ab", 7.0)
    assert found.hints == {}
    assert found.recalled.source(1, short_digest(b"a").hex()) == "job 1, a"
    assert found.recalled.source(2, short_digest(b"h0").hex()) == ""


@pytest.mark.parametrize(
    ("trials", "tried", "taken", "spared"),
    [
        (None, 17, (1, 2), 32),
        (None, 16, (1, 2), 32),  # failed steps have no results
        (None, 15, (), 28),
        (100, 17, (), 32),  # more trials are requested than were made
        (20, 17, (1, 2), 20),
        (0, 2, (1, 2), 0),  # no trials are allowed
    ],
)
def test_trials_of_earlier_jobs_stand_for_those_of_this_one(
    trials: int | None, tried: int, taken: tuple[int, ...], spared: int
) -> None:
    found = recall(network(), trials, {n: known("a", tried=tried) for n in (1, 2)})
    assert (found.recalled.taken, found.recalled.trials) == (taken, spared)


def test_half_of_a_network_is_taken_and_the_other_half_has_its_own_budget() -> None:
    found = recall(network(4), None, {1: known("a", tried=40), 2: known("b", tried=10), 3: known(), 4: known()})
    assert (found.recalled.taken, found.recalled.trials) == ((1, 2), 32)


def test_uncompared_schedules_are_restored_and_searched_further() -> None:
    found = recall(network(1), None, {1: known("a", "b", compared=False)})
    assert found.recalled.taken == ()
    assert [record.candidate for record in found.records] == [b"a", b"b"]


def test_hints_are_measured_first_and_few_of_them() -> None:
    found = recall(network(1), None, {1: known(hints=9)})
    assert found.hints == {1: tuple(f"h{n}".encode() for n in range(HINTS_MAX))}
    done = [Record(task=1, number=0, candidate=b"h0")]
    assert first_hints(found.hints[1], done) == [b"h1", b"h2", b"h3"]


def test_an_empty_store_changes_nothing() -> None:
    found = recall(network(), 50, {1: KnownSchedules(trouble="away")})
    assert (found.recalled, found.records, found.hints) == (Recalled(), (), {})


def test_numbering_of_records_continues() -> None:
    assert [record.number for record in recall(network(1), 0, {1: known("a", "b")}, 5).records] == [5, 6]


# The course of a job ----------------------------------------------------------------------------------------------


def plan(answers: dict[int, KnownSchedules], budget: int | None = None, tasks: int = 2) -> JobPlan:
    """Returns the job right after its import."""
    found = recall(network(tasks), budget, answers)
    made = ToldPlan(JobSpec(name="net", model="0" * 64, trials=budget), lanes=1, devices=1)
    everyone = range(1, tasks + 1)
    made.imported(network(tasks), found.records, 0, everyone, recalled=found.recalled, compares=True, hints=found.hints)
    return made


def test_a_job_of_known_tasks_goes_straight_to_the_compiler() -> None:
    made = plan({1: known("a"), 2: known("b")})
    assert stages(made) == {0: "compile"}
    assert made.trials == 0
    assert made.load().rounds_left == 0
    assert record_selection.best(made.tasks[1].records) is not None


def test_only_unknown_tasks_are_searched() -> None:
    made = plan({1: known("a"), 2: known()})
    assert stages(made) == {0: "baseline", 2: "select"}
    assert made.trials == 16


def test_without_trials_hints_meet_in_finals() -> None:
    made = plan({1: known(hints=4), 2: known()}, budget=0)
    assert stages(made) == {1: "build"}
    assert (made.current(1).purpose, made.current(1).candidates) == (Purpose.FINAL, (b"h0", b"h1", b"h2"))
    for task, trial, candidate, purpose in ((1, 9, b"h0", Purpose.FINAL), (1, 10, b"", Purpose.DEFAULT)):
        made.recorded(Record(task=task, number=trial, candidate=candidate, latency_s=(1.0,), purpose=purpose))
    made.advanced(1)
    made.advanced(1)
    assert stages(made) == {0: "compile"}


def test_a_replaced_client_keeps_the_known_schedules() -> None:
    found = recall(network(), None, {1: known("a"), 2: known(compared=False)})
    made = ToldPlan(JobSpec(name="net", model="0" * 64), lanes=1, devices=1)
    own = [Record(task=2, number=1, candidate=b"x", latency_s=(1.0,))]
    made.imported(network(2), [*found.records, *own], 0, (1, 2), recalled=found.recalled)
    assert made.trials == 16
    assert trials(made) == {2: BATCH - 1}  # the round that the first client began
    assert made.spent == BATCH
    assert made.tasks[1].half is None


@pytest.mark.parametrize(
    ("measured", "others"),
    [(set(), []), ({1}, [2]), ({2}, [1]), ({1, 2}, []), ({3}, []), ({4}, [5, 6]), ({5}, [4]), ({1, 6}, [2, 4])],
    ids=str,
)
def test_competitors_of_measured_tasks_are_measured_too(measured: set[int], others: list[int]) -> None:
    """Otherwise the network would use the schedules that were measured, even where the others are faster."""
    groups = {1: ["a"], 2: ["a"], 3: [], 4: ["b", "c"], 5: ["b"], 6: ["c"]}
    infos = tuple(
        TaskInfo(task=task, name=f"op{task}", workload=f"w{task}", groups=dict.fromkeys(own, 1))
        for task, own in groups.items()
    )
    assert unmeasured_competitors(Network(infos), measured) == others
