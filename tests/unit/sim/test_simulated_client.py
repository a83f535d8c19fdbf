"""A simulated client reports what a real one reports."""

from random import Random

from autosched.model import JobLoad
from autosched.sim.estimate_quality import LEARNED, PERFECT, parse
from autosched.sim.scenario import DEVICE, HOST, ScenarioJob, Work
from autosched.sim.simulated_client import SimClient

BUILD, PROFILE = Work("build", (HOST,), 8.0), Work("profile", (DEVICE,), 40.0)
ROUND = (BUILD, PROFILE)
NETWORK = ScenarioJob(
    tasks=((ROUND,) * 3, (ROUND,)),
    before=(Work("import", (HOST,), 1.0),),
    after=(Work("compile", (HOST,), 2.0), Work("evaluate", (DEVICE,), 3.0)),
)


def wanted(load: JobLoad) -> dict[int, str]:
    return {task.task: task.stage_next for task in load.tasks if task.resources_next}


def test_rounds_left_are_those_that_no_task_has_begun() -> None:
    client = SimClient(NETWORK)
    assert client.load().rounds_left == 4, "the network is imported first"
    load = client.ended(0, ok=True)
    assert (wanted(load), load.rounds_left) == ({1: "build", 2: "build"}, 2)
    assert client.ended(1, ok=True).rounds_left == 2
    assert client.ended(1, ok=True).rounds_left == 1, "the first task has begun its second round"
    assert client.ended(2, ok=False).rounds_left == 1, "the second task has given its only round up"
    for _ in range(3):
        load = client.ended(1, ok=True)
    assert (wanted(load), load.rounds_left) == ({1: "profile"}, 0)
    load = client.ended(1, ok=True)
    assert (wanted(load), load.rounds_left) == ({0: "compile"}, 0)


def test_an_order_says_whose_round_is_next_and_how_many_are_under_way() -> None:
    plan = ScenarioJob(tasks=((ROUND,) * 2, (ROUND,), (ROUND,)), order=(1, 1, 2, 3), under_way_max=2)
    client = SimClient(plan)
    load = client.load()
    assert wanted(load) == {1: "build", 2: "build"}, "a task has one round under way at most"
    assert not any(task.complete for task in load.tasks)
    assert load.rounds_left == 2
    client.ended(2, ok=True)
    load = client.ended(2, ok=True)
    assert wanted(load) == {3: "build"}
    assert [task.task for task in load.tasks if task.complete] == [2]
    client.ended(1, ok=True)
    assert wanted(client.ended(1, ok=True)) == {1: "build"}
    client.ended(3, ok=False)
    client.ended(1, ok=True)
    assert client.ended(1, ok=True).complete


def test_idle_tasks_take_rounds_from_a_pool() -> None:
    client = SimClient(ScenarioJob(tasks=((ROUND,), (), ()), pool=(ROUND,) * 3))
    load = client.load()
    assert (wanted(load), load.rounds_left) == ({1: "build", 2: "build", 3: "build"}, 1)
    client.ended(2, ok=True)
    load = client.ended(2, ok=True)
    assert (wanted(load), load.rounds_left) == ({2: "build"}, 0)
    client.ended(3, ok=True)
    assert [task.task for task in client.ended(3, ok=True).tasks if task.complete] == [3]
    for task in (1, 2):
        client.ended(task, ok=True)
        load = client.ended(task, ok=True)
    assert load.complete
    assert client.rounds_done == 4


def test_every_order_comes_to_its_end() -> None:
    for seed in range(50):
        rng = Random(seed)
        rounds = [rng.randint(1, 4) for _ in range(rng.randint(1, 5))]
        order = [task for task, count in enumerate(rounds, start=1) for _ in range(count)]
        rng.shuffle(order)
        plan = ScenarioJob(
            tasks=tuple((ROUND,) * count for count in rounds),
            before=NETWORK.before,
            after=NETWORK.after,
            order=tuple(order),
            under_way_max=rng.randint(1, 3),
        )
        client = SimClient(plan)
        load, waiting, steps = client.load(), dict[int, str](), 0
        while not load.complete:
            waiting.update(wanted(load))
            assert len(waiting) <= max(1, plan.under_way_max)
            task = rng.choice(list(waiting))
            if rng.random() < 0.1:
                client.resume()
                waiting = wanted(client.load())
                assert task in waiting
            del waiting[task]
            load = client.ended(task, ok=True)
            steps += 1
        assert steps >= 3 + 2 * len(order)
        assert client.rounds_done == len(order) + 2


def test_the_future_is_what_is_still_to_be_done() -> None:
    client = SimClient(NETWORK, PERFECT.of(NETWORK, "seed"))
    client.ended(0, ok=True)
    assert client.future(1) == ROUND * 3
    client.ended(1, ok=True)
    assert client.future(1) == (PROFILE, *ROUND * 2)
    assert client.future(2) == ROUND
    assert client.future(0) == ()


def test_who_learns_is_told_nothing() -> None:
    client = SimClient(NETWORK, LEARNED.of(NETWORK, "seed"))
    assert [task.expected_s for task in client.load().tasks] == [None]


def test_wrong_estimates_are_wrong_by_one_factor_per_job_and_stage() -> None:
    tasks = (((Work("build", (HOST,), 5.0), PROFILE), (Work("build", (HOST,), 15.0), PROFILE)),)
    plan = ScenarioJob(tasks=tasks)
    wrong = parse("wrong:1.0")
    said = [work.duration_s for work in SimClient(plan, wrong.of(plan, "seed")).future(1)]
    assert said[0] == said[2] != 10.0
    assert said[1] == said[3] != 40.0
    assert said[0] / 10 != said[1] / 40
    again, other = (SimClient(plan, wrong.of(plan, seed)).future(1) for seed in ("seed", "another"))
    assert [work.duration_s for work in again] == said
    assert [work.duration_s for work in other] != said
    exact = parse("wrong:0")
    assert [w.duration_s for w in SimClient(plan, exact.of(plan, "seed")).future(1)] == [10.0, 40.0] * 2
