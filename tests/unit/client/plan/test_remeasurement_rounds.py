"""Rounds without new trials: repeated measurements after disturbances, and finals of the best of each task."""

import random

import pytest

from autosched.client.plan.job_plan import JobPlan
from autosched.client.plan.task_state import FINALS_MAX, ROUND_STAGES
from autosched.model import NETWORK_TASK, JobLoad, Purpose, Record
from autosched.records.record_selection import ATTEMPTS_MAX
from unit.client.plan.test_job_plan import course, network, purposes, record, wants

ALL = (1, 2, 3)


def again(candidate: int, trial: int, latency_s: float | None = 1e-3, task: int = 1) -> Record:
    return Record(
        task=task, number=trial, candidate=str(candidate).encode(), latency_s=(latency_s,) if latency_s else (),
        purpose=Purpose.AGAIN,
    )  # fmt: skip


def final(trial: int, candidate: bytes, latency_s: float, task: int = 1, disturbed: str = "") -> Record:
    purpose = Purpose.FINAL if candidate else Purpose.DEFAULT
    return Record(
        task=task, number=trial, candidate=candidate, latency_s=(latency_s,), purpose=purpose, disturbed=disturbed
    )


def measured(c: JobPlan, task: int, first: int, count: int = 4) -> None:
    for trial in range(first, first + count):
        c.recorded(record(task, trial, 1e-3 * (1 + trial)))


def one_round(trials: int = 8, finals: tuple[int, ...] = ()) -> JobPlan:
    """Returns a job of one task after measuring and learning in its first round: trials 0 to 3."""
    c = course(trials=trials)
    c.imported(network(tasks=1), [], finals=finals)
    c.selected(1, 4)
    c.advanced(1)
    measured(c, 1, 0)
    c.advanced(1)
    return c


def test_disturbed_candidates_precede_new_trials_and_cost_none() -> None:
    c = one_round(trials=12)
    assert [r.number for r in c.tagged([1, 2, 99], "load")] == [1, 2]
    load = c.updated(1, 1e-3)
    assert wants(load) == {1: "build"}
    assert (c.current(1).purpose, c.current(1).candidates) == (Purpose.AGAIN, (b"1", b"2"))
    spent, rounds = c.spent, len(c.tasks[1].search.best_s)
    assert wants(c.advanced(1)) == {1: "profile"}
    for candidate in (1, 2):
        c.recorded(again(candidate, 3 + candidate))
    assert wants(c.advanced(1)) == {1: "update"}
    assert wants(c.updated(1, 0.5e-3)) == {1: "select"}
    assert (c.spent - spent, len(c.tasks[1].search.best_s), c.tasks[1].search.best_s[-1]) == (4, rounds, 0.5e-3)


def test_late_tags_wait_for_the_next_round_of_the_task() -> None:
    c = one_round(trials=100)
    c.updated(1, 1e-3)
    c.tagged([0], "drift")
    assert c.current(1).stage == "select"
    c.selected(1, 4)
    c.advanced(1)
    c.advanced(1)
    assert wants(c.updated(1, 1e-3)) == {1: "build"}


def test_remeasurements_on_a_permanently_noisy_device_are_limited() -> None:
    c = one_round(trials=4)
    c.tagged(range(4), "load")
    load, trial = c.updated(1, 1e-3), 4
    for _ in range(ATTEMPTS_MAX * 4):
        if purposes(c).get(1) is not Purpose.AGAIN:
            break
        c.advanced(1)
        for candidate in c.current(1).candidates:
            c.recorded(again(int(candidate), trial))
            c.tagged([trial], "load")
            trial += 1
        c.advanced(1)
        load = c.updated(1, 1e-3)
    assert wants(load) == {NETWORK_TASK: "compile"}
    assert trial == 8, "no more than a batch of a budget so small"


def test_failed_remeasurement_rounds_are_repeated_a_limited_number_of_times() -> None:
    c = one_round(trials=4)
    c.tagged(range(4), "load")
    load = c.updated(1, 1e-3)
    for _ in range(10):
        if 1 not in purposes(c):
            break
        load = c.failed(1, measured=0, error="build: no")
    assert wants(load) == {NETWORK_TASK: "compile"}
    assert c.tasks[1].search.open


def test_the_next_client_continues_the_remeasurements() -> None:
    records = [record(1, 0, 1e-3), record(1, 1, 2e-3), again(0, 2)]
    disturbed = [Record(**{**as_dict(r), "disturbed": "load"}) for r in records]
    c = course(trials=2)
    assert wants(c.imported(network(tasks=1), [*disturbed[:2], again(0, 2)])) == {1: "build"}
    assert c.current(1).candidates == (b"1",)
    assert c.tasks[1].attempts[b"0"] == 1
    assert c.spent == 2


def as_dict(one: Record) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


# Finals ---------------------------------------------------------------------------------------------------------------


def test_finals_begin_after_the_last_trial() -> None:
    c = one_round(trials=4, finals=(1,))
    c.tasks[1].records[1] = record(1, 1, 1.05e-3)
    load = c.updated(1, 1e-3)
    assert wants(load) == {1: "build"}
    assert (c.current(1).purpose, c.current(1).candidates) == (Purpose.FINAL, (b"0", b"1"))
    assert wants(c.advanced(1)) == {1: "profile"}
    for i, candidate in enumerate((b"0", b"1", b"")):
        c.recorded(final(4 + i, candidate, 1e-3))
    load = c.advanced(1)
    assert wants(load) == {NETWORK_TASK: "compile"}
    assert c.spent == 4


def test_a_running_final_reports_the_next_resources() -> None:
    c = one_round(trials=4, finals=(1,))
    c.updated(1, 1e-3)
    for stages_next in ("profile", ""):
        c.started(1, c.current(1).stage)
        (load,) = [t for t in c.load().tasks if t.task == 1]
        assert load.stage_next == stages_next
        c.advanced(1)


def test_finals_of_several_tasks_run_at_once_the_heaviest_first() -> None:
    c = course(trials=3)
    load = c.imported(network(), [record(task, task - 1, 1e-3 * task) for task in ALL], finals=ALL)
    assert list(wants(load)) == [3, 2, 1]
    assert set(purposes(c).values()) == {Purpose.FINAL}


@pytest.mark.parametrize("how", ["disturbed", "failed"])
def test_finals_are_repeated_once_at_most(how: str) -> None:
    c = one_round(trials=4, finals=(1,))
    load, trial, held = c.updated(1, 1e-3), 4, 0
    while purposes(c).get(1) is Purpose.FINAL:
        held += 1
        if how == "failed":
            load = c.failed(1, measured=0, error="profile: no")
            continue
        c.advanced(1)
        c.recorded(final(trial, b"0", 1e-3))
        c.recorded(final(trial + 1, b"", 1e-3))
        c.tagged([trial, trial + 1], "load")
        trial += 2
        load = c.advanced(1)
    assert held == FINALS_MAX
    assert wants(load) == {NETWORK_TASK: "compile"}


def test_a_task_without_a_valid_record_or_a_default_has_no_finals() -> None:
    c = course(trials=2)
    records = [record(1, 0, None), record(2, 1, 1e-3)]
    assert wants(c.imported(network(tasks=2), records, finals=(1,))) == {NETWORK_TASK: "compile"}


def test_finals_that_an_earlier_client_held_are_not_held_again() -> None:
    records = [record(1, 0, 1e-3), final(1, b"0", 1e-3), final(2, b"", 2e-3)]
    assert wants(course(trials=1).imported(network(tasks=1), records, finals=(1,))) == {NETWORK_TASK: "compile"}
    half = course(trials=1)
    assert wants(half.imported(network(tasks=1), records[:2], finals=(1,))) == {1: "build"}


def test_records_disturbed_after_the_finals_are_not_measured_again() -> None:
    c = one_round(trials=4, finals=(1,))
    c.updated(1, 1e-3)
    c.tagged([0, 1], "drift")
    c.advanced(1)
    c.recorded(final(4, b"0", 1e-3))
    c.recorded(final(5, b"", 2e-3))
    assert wants(c.advanced(1)) == {NETWORK_TASK: "compile"}


def test_records_of_another_job_take_part_in_finals_unless_compared_before() -> None:
    others = [record(1, 0, 1e-3), final(1, b"0", 1e-3), final(2, b"", 2e-3)]
    settled = course(trials=0).imported(network(tasks=1), others, borrowed=3, finals=(1,))
    assert wants(settled) == {NETWORK_TASK: "compile"}
    unsettled = course(trials=0).imported(network(tasks=1), others[:1], borrowed=1, finals=(1,))
    assert wants(unsettled) == {1: "build"}


# How many rounds are left ---------------------------------------------------------------------------------------------


def test_rounds_left_counts_rounds_that_have_not_begun() -> None:
    c = course(trials=24)
    assert c.load().rounds_left is None
    load = c.imported(network(tasks=2), [], finals=(1, 2))  # two rounds of four are in progress
    assert load.rounds_left == (24 - 8) / 4 + 2


def test_rounds_left_counts_disturbed_candidates_and_ends_at_none() -> None:
    c = one_round(trials=4, finals=(1,))
    assert c.load().rounds_left == 1
    c.tagged([0, 1], "load")
    assert c.updated(1, 1e-3).rounds_left == 1, "the round that measures again has begun; the finals have not"
    c.advanced(1)
    for candidate in (0, 1):
        c.recorded(again(candidate, 4 + candidate))
    c.advanced(1)
    assert c.updated(1, 1e-3).rounds_left == 0
    assert c.current(1).purpose is Purpose.FINAL


# Anything -------------------------------------------------------------------------------------------------------------


class Anything:
    """A backend and a device driven by a seed; the client may be replaced at any time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.trials = self.rng.randrange(60)
        self.plan = network(tasks=self.rng.randrange(1, 5), batch=self.rng.randrange(1, 6))
        self.records: list[Record] = []
        self.fresh = 0
        self.begin()

    def begin(self) -> None:
        """Starts a new client."""
        self.course = course(trials=self.trials, lanes=2)
        finals = [info.task for info in self.plan.tasks]
        self.pending = wants(self.course.imported(self.plan, list(self.records), finals=finals))

    def profile(self, task: int) -> None:
        """Returns records, some of them disturbed."""
        c, current = self.course, self.course.current(task)
        purpose = current.purpose
        if purpose is Purpose.TRIAL:
            candidates = [f"{self.fresh + i}".encode() for i in range(current.trials)]
            self.fresh += len(candidates)
        else:
            candidates = [*current.candidates, *([b""] if purpose is Purpose.FINAL else [])]
        for candidate in candidates:
            latency_s = (self.rng.random() + 0.1,) if self.rng.random() < 0.8 else ()
            made = Record(
                task=task, number=len(self.records), candidate=candidate, latency_s=latency_s,
                purpose=purpose if candidate else Purpose.DEFAULT,
            )  # fmt: skip
            self.records.append(made)
            c.recorded(made)
        if self.rng.random() < 0.4:
            for tagged in c.tagged(range(max(0, len(self.records) - 6), len(self.records)), "load"):
                self.records[tagged.number] = tagged

    def step(self) -> JobLoad:
        """Runs one step of one task."""
        c, task = self.course, self.rng.choice(sorted(self.pending))
        stage = self.pending.pop(task)
        if task == NETWORK_TASK:
            return c.compiled() if stage == "compile" else c.evaluated()
        current = c.current(task)
        assert stage in ROUND_STAGES[current.purpose]
        if self.rng.random() < 0.05:
            return c.failed(task, measured=current.trials if stage == "update" else 0, error="x")
        if stage == "select":
            return c.selected(task, current.trials)
        if stage == "profile":
            self.profile(task)
        if stage == "update":
            return c.updated(task, self.rng.choice([None, 0.5]))
        return c.advanced(task)


@pytest.mark.parametrize("seed", range(150))
def test_any_plan_keeps_its_budget_with_all_measurements_disturbed(seed: int) -> None:
    world = Anything(seed)
    for _ in range(5_000):
        if not world.pending:
            break
        if world.rng.random() < 0.005:
            world.begin()
            continue
        world.pending |= wants(world.step())
    assert world.course.complete or world.course.failure is not None
    assert sum(r.purpose is Purpose.TRIAL for r in world.records) <= world.trials
    assert world.course.load().rounds_left == 0 or world.course.failure is not None
    for info in world.plan.tasks:
        own = [r for r in world.records if r.task == info.task and r.purpose is Purpose.AGAIN]
        assert all(sum(r.candidate == one.candidate for r in own) <= ATTEMPTS_MAX for one in own)
