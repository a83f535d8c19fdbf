"""The plan of a job: the next stage of each task."""

import random

import msgspec
import pytest

from autosched.backend import Built, Measured, Network
from autosched.client.plan.job_plan import JobPlan
from autosched.client.plan.task_state import ROUND_STAGES, Round
from autosched.model import NETWORK_TASK, JobFailure, JobLoad, JobSpec, Purpose, Record, TaskInfo, TaskLoad
from told_plan import ToldPlan

MODEL = "0" * 64


def network(tasks: int = 3, batch: int = 4, default_trials: int = 48) -> Network:
    infos = tuple(TaskInfo(task=i, name=f"op{i}", workload=f"w{i}", flops=float(i)) for i in range(1, tasks + 1))
    return Network(tasks=infos, default_trials=default_trials, batch=batch)


def course(trials: int | None = None, lanes: int = 1, devices: int = 1) -> JobPlan:
    return ToldPlan(JobSpec(name="net", model=MODEL, trials=trials), lanes=lanes, devices=devices)


def wants(load: JobLoad) -> dict[int, str]:
    """Returns the requested stage by task, for tasks that request one."""
    return {t.task: t.stage_next for t in load.tasks if t.resources_next}


def rounds(plan: JobPlan) -> dict[int, Round]:
    """Returns the current rounds; task 0 is the network."""
    found = {task: plan.round(task) for task in (NETWORK_TASK, *plan.tasks)}
    return {task: current for task, current in found.items() if current is not None}


def stages(plan: JobPlan) -> dict[int, str]:
    """Returns the stage of each task in a round."""
    return {task: current.stage for task, current in rounds(plan).items()}


def trials(plan: JobPlan) -> dict[int, int]:
    """Returns the trials of each current round of the search."""
    return {task: current.trials for task, current in rounds(plan).items() if current.is_search}


def purposes(plan: JobPlan) -> dict[int, Purpose]:
    """Returns the purpose of each current round that selects nothing."""
    found = {task: current.purpose for task, current in rounds(plan).items()}
    return {task: purpose for task, purpose in found.items() if purpose in (Purpose.AGAIN, Purpose.FINAL)}


def record(task: int, trial: int, latency_s: float | None) -> Record:
    return Record(task=task, number=trial, candidate=str(trial).encode(), latency_s=(latency_s,) if latency_s else ())


def test_a_job_begins_with_import_on_the_host() -> None:
    (load,) = course().load().tasks
    assert (load.task, load.stage_next, load.resources_next) == (NETWORK_TASK, "import", ("host",))


def test_after_import_the_heaviest_tasks_are_selected_for() -> None:
    c = course()
    assert wants(c.imported(network(), [])) == {3: "select", 2: "select", 1: "select"}
    assert c.trials == 48


@pytest.mark.parametrize(("lanes", "devices"), [(1, 1), (2, 1), (4, 3)])
def test_only_as_many_tasks_are_under_way_as_keep_all_units_busy(lanes: int, devices: int) -> None:
    c = course(lanes=lanes, devices=devices)
    assert len(wants(c.imported(network(tasks=20), []))) == lanes + devices + 1


def test_a_task_that_lost_to_a_competing_one_gets_no_more_rounds() -> None:
    infos = [TaskInfo(task=n, name="conv", workload=str(n), groups={"g": 1}) for n in (1, 2)]
    past = [record(n, 8 * n + i, {1: 0.001, 2: 0.010}[n]) for n in (1, 2) for i in range(8)]
    c = course(trials=24)
    load = c.imported(Network(tasks=tuple(infos), batch=4), past, finals=(1, 2))
    assert wants(load) == {1: "select"}
    assert {t.task for t in load.tasks if t.complete} == {2}
    for after in ("select", "build"):  # another round, and its finals
        c.selected(1, 4)
        c.advanced(1)
        c.advanced(1)
        assert wants(c.updated(1, 0.001)) == {1: after}
    assert set(purposes(c)) == {1}, "no finals for the other one"


def test_a_round_goes_through_the_stages_and_profiles_on_the_device() -> None:
    c = course()
    c.imported(network(), [])
    assert wants(c.selected(3, 4)) == {3: "build"}
    load = c.advanced(3)
    assert wants(load) == {3: "profile"}
    assert load.tasks[0].resources_next == ("device:cpu",)
    assert wants(c.advanced(3)) == {3: "update"}


def test_after_a_round_the_task_with_the_highest_gain_gets_the_next() -> None:
    c = course()
    c.imported(network(tasks=4), [])  # 4, 3, 2 are in progress
    for advance in (lambda: c.selected(4, 4), lambda: c.advanced(4), lambda: c.advanced(4)):
        advance()
    load = c.updated(4, 1e-3)
    assert wants(load) == {1: "select"}
    assert TaskLoad(task=4) in load.tasks


def test_fewer_trials_than_tasks_go_to_the_heaviest() -> None:
    c = course(trials=2)
    assert wants(c.imported(network(), [])) == {3: "select", 2: "select"}
    assert trials(c) == {3: 1, 2: 1}


def test_half_of_a_small_budget_is_reserved_for_the_most_useful_tasks() -> None:
    c = course(trials=24)
    c.imported(network(tasks=3, batch=8), [])
    assert trials(c) == {3: 4, 2: 4, 1: 4}
    assert c.spent == 12


def test_zero_trials_compile_at_once() -> None:
    assert wants(course(trials=0).imported(network(), [])) == {NETWORK_TASK: "compile"}


def test_tasks_without_a_network_end_with_their_search() -> None:
    """Nothing is compiled, early or late, and nothing is compared with another engine."""
    c = course(trials=4)
    tasks = msgspec.structs.replace(network(tasks=1), tasks_only=True)
    assert wants(c.imported(tasks, [], compares=True)) == {1: "select"}
    c.selected(1, 4)
    c.advanced(1)
    assert not c.advanced(1).complete
    load = c.updated(1, 1e-3)
    assert load.complete
    assert wants(load) == {}
    assert c.network_round is None


def test_tasks_without_a_budget_are_complete_at_once() -> None:
    load = course(trials=0).imported(msgspec.structs.replace(network(), tasks_only=True), [])
    assert load.complete
    assert wants(load) == {}


def test_an_exhausted_space_gives_its_trials_back_and_is_complete() -> None:
    c = course(trials=8)
    c.imported(network(tasks=1), [])
    load = c.selected(1, 0)
    assert c.spent == 0
    assert [t.complete for t in load.tasks if t.task == 1] == [True]
    assert wants(load) == {NETWORK_TASK: "compile"}


def test_a_failed_step_gives_back_what_was_not_measured() -> None:
    c = course(trials=8)
    c.imported(network(tasks=1), [])
    c.selected(1, 4)
    c.failed(1, measured=1, error="build: no")
    assert c.spent == 1 + c.current(1).trials


def test_measurements_before_a_step_failed_are_learned_from() -> None:
    c = course(trials=8)
    c.imported(network(tasks=1), [])
    c.selected(1, 4)
    c.advanced(1)
    load = c.failed(1, measured=3, error="profile: it took too long")
    assert wants(load) == {1: "update"}
    assert (c.spent, c.current(1).trials) == (3, 3)
    assert c.updated(1, None).failure is None
    assert c.tasks[1].search.strikes == 1


def test_a_job_whose_steps_all_fail_ends_with_the_reason() -> None:
    c = course(trials=1000)
    c.imported(network(tasks=1), [])
    for _ in range(3):
        assert c.current(1).stage == "select"
        load = c.failed(1, measured=0, error="build: the disk is full")
    assert wants(load) == {}
    assert load.failure is not None
    assert "build: the disk is full" in load.failure.message


def test_a_task_that_only_fails_gets_no_rounds_when_another_works() -> None:
    c = course(trials=1000)
    c.imported(network(tasks=2), [record(2, trial, 1e-3) for trial in range(4)])
    c.tasks[2].search.exhausted = True
    c.tasks[2].round = None
    for _ in range(3):
        load = c.failed(1, measured=0, error="build: no")
    assert wants(load) == {NETWORK_TASK: "compile"}


def test_a_running_stage_reports_its_resources_and_the_next_ones() -> None:
    c = course()
    c.imported(network(), [])
    c.selected(3, 4)
    c.started(3, c.current(3).stage)
    (load,) = [t for t in c.load().tasks if t.task == 3]
    assert (load.stage_done, load.resources_now) == (False, ("host",))
    assert (load.stage_next, load.resources_next) == ("profile", ("device:cpu",))
    assert [t.stage_done for t in c.advanced(3).tasks] == [True]


def test_a_job_ends_with_compile_and_evaluate() -> None:
    c = course(trials=0)
    c.imported(network(), [])
    load = c.compiled()
    assert wants(load) == {NETWORK_TASK: "evaluate"}
    assert load.tasks[0].resources_next == ("device:cpu",)
    assert c.evaluated().complete


def test_a_broken_job_has_a_reason() -> None:
    failure = JobFailure("model_rejected", "no")
    assert course().broken(failure).failure == failure


def test_earlier_records_count_as_rounds_and_as_spent_trials() -> None:
    c = course(trials=20)
    earlier = [record(1, i, 1e-3 if i else None) for i in range(6)]
    c.imported(network(tasks=2), earlier)
    assert c.tasks[1].search.best_s == [1e-3]
    half = c.tasks[1].half
    assert half is not None
    assert [r.number for r in half.half] == [4, 5]
    assert c.tasks[2].search.best_s == []
    assert c.spent == 6 + sum(trials(c).values())
    c.selected(1, 2)
    c.updated(1, 5e-4)
    assert (c.tasks[1].search.best_s, c.tasks[1].half) == ([1e-3, 5e-4], None)


def test_all_trials_measured_earlier_leaves_only_the_compilation() -> None:
    c = course(trials=4)
    assert wants(c.imported(network(tasks=1), [record(1, i, 1e-3) for i in range(4)])) == {NETWORK_TASK: "compile"}


def test_expected_time_is_the_median_of_the_stage() -> None:
    c = course()
    c.durations_s["select"].extend([1.0, 9.0, 2.0])
    assert {t.expected_s for t in c.imported(network(), []).tasks if t.stage_next == "select"} == {2.0}


@pytest.mark.parametrize("seed", range(200))
def test_any_plan_ends_within_its_budget(seed: int) -> None:
    """Draws answers of a backend: the budget holds, one stage per task, the network comes last, and the plan ends."""
    rng = random.Random(seed)
    c = course(trials=rng.randrange(120), lanes=rng.randrange(1, 4), devices=rng.randrange(1, 3))
    plan = network(tasks=rng.randrange(1, 9), batch=rng.randrange(1, 9))
    pending = wants(c.imported(plan, []))
    measured = 0
    for _ in range(10_000):
        if not pending:
            break
        task = rng.choice(sorted(pending))
        stage = pending.pop(task)
        if task == NETWORK_TASK:
            assert not pending, "the network is compiled while tasks are being tuned"
            load = c.compiled() if stage == "compile" else c.evaluated()
        elif rng.random() < 0.05:
            done = rng.randrange(c.current(task).trials + 1) if stage == "profile" else 0
            load = c.failed(task, measured=done, error="x")
        elif stage == "select":
            load = c.selected(task, rng.randrange(c.current(task).trials + 1))
        elif stage == "update":
            measured += c.current(task).trials
            load = c.updated(task, rng.choice([None, rng.random()]))
        else:
            assert stage in ROUND_STAGES[Purpose.TRIAL]
            load = c.advanced(task)
        new = wants(load)
        assert not new.keys() & pending.keys(), "a task has two stages at once"
        pending |= new
        assert c.spent <= c.trials
    assert c.complete or c.failure is not None
    assert measured <= c.trials


def test_rounds_without_a_valid_measurement_close_a_task_that_once_had_one() -> None:
    c = course(trials=1000)
    c.imported(network(tasks=1), [])
    for best_s in (1e-3, None, None, None):
        assert c.tasks[1].search.open
        load = c.updated(1, best_s)
    assert not c.tasks[1].search.open
    assert wants(load) == {NETWORK_TASK: "compile"}


def test_records_of_another_job_cost_no_trials() -> None:
    c = course(trials=8)
    c.imported(network(tasks=1), [record(1, i, 1e-3) for i in range(5)], borrowed=4)
    assert c.spent == 1 + c.current(1).trials
    assert c.tasks[1].search.best_s == [1e-3]
    assert c.current(1).trials == 3, "the round that was cut off is finished"


@pytest.mark.parametrize(("elsewhere", "more"), [(0, 0), (3, 3), (1_000, 64)])
def test_units_of_other_hosts_are_kept_busy(elsewhere: int, more: int) -> None:
    c = course(lanes=1, devices=1)
    c.elsewhere = elsewhere
    assert len(wants(c.imported(network(tasks=200, default_trials=10_000), []))) == 3 + more


def test_a_lost_helper_costs_its_stage_and_nothing_else() -> None:
    c = course(trials=8)
    c.imported(network(tasks=1), [])
    c.selected(1, 4)
    c.started(1, c.current(1).stage)
    assert wants(c.lost(1)) == {1: "build"}
    c.started(1, c.current(1).stage)
    c.advanced(1)
    current = c.current(1)
    current.candidates, current.built = [b"a", b"b"], [Built(b"a"), Built(b"b")]
    current.measured.append(Measured(b"a", (1e-3,)))
    c.started(1, c.current(1).stage)
    assert wants(c.lost(1)) == {1: "profile"}
    assert (current.candidates, [one.candidate for one in current.built]) == ([b"b"], [b"b"])
    assert c.spent == 4
    assert c.tasks[1].search.strikes == 0


def measuring(steps: int) -> JobPlan:
    """Returns a plan in which several steps measure task 3."""
    c = course()
    c.imported(network(), [])
    c.selected(3, 4)
    c.advanced(3)
    for _ in range(steps):
        assert c.started(3, "profile") is c.current(3)
    return c


def test_a_stage_that_several_steps_share_is_over_with_the_last() -> None:
    c = measuring(3)
    for load in (c.advanced(3), c.failed(3, 0, "the device is gone")):
        assert [(task.task, task.stage_done, task.stage_next) for task in load.tasks] == [(3, False, "update")]
    assert wants(c.advanced(3)) == {3: "update"}
    assert not c.current(3).shared
    assert c.spent == 4 * 3, "what one of them could not measure, another did"


def test_a_shared_stage_fails_if_its_last_step_fails() -> None:
    c = measuring(2)
    c.advanced(3)
    c.current(3).measured += [Measured(b"a", (1.0,))]
    assert wants(c.failed(3, 1, "the device is gone")) == {3: "update"}
    assert c.current(3).trials == 1


def test_a_lost_helper_that_shared_a_stage_costs_nothing() -> None:
    c = measuring(2)
    assert not any(task.stage_done for task in c.lost(3).tasks)
    assert wants(c.advanced(3)) == {3: "update"}


def test_a_step_that_joins_a_finished_stage_has_no_work() -> None:
    c = measuring(1)
    c.advanced(3)
    assert c.started(3, "profile") is None
    assert wants(c.take_changes(3)) == {3: "update"}
    c.tasks[3].round = None
    assert c.started(3, "profile") is None, "its task is in no round"


def test_a_load_is_of_the_moment_in_which_it_is_taken() -> None:
    """Between the event of a step and its report other steps end: the report has their tasks too, as they are then."""
    c = JobPlan(JobSpec(name="net", model=MODEL), lanes=1, devices=1)
    c.started(NETWORK_TASK, "import")
    c.imported(network(), [])
    for task in (3, 2):
        c.started(task, "select")
        c.selected(task, 4)
    assert wants(c.take_changes(NETWORK_TASK)) == {1: "select"}, "of the others a step runs, as the daemon believes"
    c.started(3, "build")
    c.advanced(3)
    assert wants(c.take_changes(3)) == {3: "profile"}
    assert wants(c.take_changes(3)) == {3: "profile"}, "each end of a step of the task reports it"
    assert wants(c.take_changes(2)) == {2: "build"}
    assert wants(c.take_changes(2)) == {2: "build"}, "nothing else has changed since"


@pytest.mark.parametrize("seed", range(100))
def test_the_last_report_of_each_task_is_its_state(seed: int) -> None:
    """Steps end in any order, and are reported in any other: what the daemon knows in the end is the plan."""
    rng = random.Random(seed)
    c = JobPlan(JobSpec(name="net", model=MODEL, trials=rng.randrange(8, 80)), lanes=2, devices=2)
    c.started(NETWORK_TASK, "import")
    c.imported(network(tasks=5, batch=4), [])
    known = dict(wants(c.take_changes(NETWORK_TASK)))
    ended: list[int] = []
    while known or ended:
        if ended and (not known or rng.random() < 0.5):
            task = ended.pop(rng.randrange(len(ended)))
            said = {load.task: load for load in c.take_changes(task).tasks}
            assert not set(said) & set(ended), "their own ends are still to be reported"
            known.update((one, load.stage_next) for one, load in said.items() if load.resources_next)
            continue
        task = rng.choice(sorted(known))
        stage = known.pop(task)
        assert c.started(task, stage) is not None, f"task {task} is not at {stage}"
        match stage:
            case "select":
                c.selected(task, c.current(task).trials)
            case "update":
                c.updated(task, rng.uniform(1e-3, 2e-3))
            case "compile":
                c.compiled()
            case "evaluate":
                c.evaluated()
            case _:
                c.advanced(task)
        ended.append(task)
    assert c.complete
