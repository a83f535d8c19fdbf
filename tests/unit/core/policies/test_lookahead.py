"""Looking ahead: the simulated orders are those that happen, equal states give equal plans, and the rules' names are
known."""

from collections.abc import Sequence
from random import Random

import pytest

from autosched.core.events import ClientAttached, ResourcesDeclared, RuleChosen
from autosched.core.policies import dispatching_rules, lookahead
from autosched.core.policies.dispatching_rules import RULES, RuleInput, named, order
from autosched.core.policies.lookahead import OPERATIONS_MAX, Forecast, Snapshot, play, search, snapshot
from autosched.core.policies.policy import POLICIES, PREDICTIVE, Policy
from autosched.core.policies.predictive import AIMS, foreseen_key
from autosched.core.scheduler import Scheduler
from autosched.core.state import State
from autosched.model import Goal, JobLoad, Pool, Unit
from autosched.sim.estimate_quality import PERFECT
from autosched.sim.scenario import DEVICE, HOST, Scenario, ScenarioJob, Work
from autosched.sim.simulator import Simulator
from unit.core.scheduler_driver import ONE_CORE, Story, wants

OBEDIENT = Policy("obedient", foreseen_key, drifts=True)
"""Policy that follows a given rule and plans nothing itself."""


def random_load(seed: int, jobs: int = 4) -> Scenario:
    """Returns jobs of one task, on one or two units of each pool. Times are multiples of 1/64 s: exact, and seldom
    equal."""
    rng = Random(f"lookahead/{seed}")

    def seconds() -> float:
        return rng.randint(1, 200) / 64

    def rounds() -> tuple[tuple[Work, ...], ...]:
        stages = (("build", HOST), ("profile", DEVICE), ("update", HOST))
        return tuple(tuple(Work(s, (p,), seconds()) for s, p in stages) for _ in range(rng.randint(1, 3)))

    pools = tuple(Pool(n, tuple(Unit(f"{n}.{i}") for i in range(rng.randint(1, 2)))) for n in (HOST, DEVICE))
    return Scenario(pools=pools, jobs=tuple(ScenarioJob(tasks=(rounds(),)) for _ in range(jobs)), seed=seed)


def foreseen_and_seen(seed: int, rule: str) -> tuple[Forecast, Forecast] | None:
    """Returns the orders simulated after the last arrival, and the real ones; None: several steps ended at the same
    instant."""
    load, played = random_load(seed), []

    def watch(scheduler: Scheduler) -> None:
        if isinstance(world.history[-1].event, ResourcesDeclared):
            scheduler.state.rule = rule
        if isinstance(world.history[-1].event, ClientAttached) and scheduler.state.last_job == len(load.jobs):
            assert scheduler.state.now == 0.0
            played.append(play(snapshot(scheduler.state), named(rule)))

    world = Simulator(load, OBEDIENT, watch, estimates=PERFECT)
    world.scheduler.advice = lambda: iter(())  # type: ignore[method-assign]  # nothing else names a rule
    report = world.run()
    ends = [span.ended_at for span in report.spans]
    if len(set(ends)) < len(ends):
        return None
    ended_at = [at for at, _ in world.ended.values()]
    return played[-1], Forecast(max(ended_at), sum(ended_at))


FIXED = [
    order(jobs, builds_first=builds_first) for jobs in ((4, 3, 2, 1), (2, 4, 1, 3)) for builds_first in (True, False)
]


@pytest.mark.parametrize("rule", ["first-come", "build-first", "shortest", "longest", *FIXED])
def test_simulated_orders_are_those_that_happen(rule: str) -> None:
    compared = 0
    for seed in range(25):
        if (both := foreseen_and_seen(seed, rule)) is not None:
            foreseen, seen = both
            assert foreseen.makespan_s == pytest.approx(seen.makespan_s), f"seed {seed}"
            assert foreseen.completion_s == pytest.approx(seen.completion_s), f"seed {seed}"
            compared += 1
    assert compared >= 8


def test_rules_make_a_difference() -> None:
    """Guards the test above, which would prove nothing otherwise."""
    seen = [both[1] for rule in ("first-come", "shortest", *FIXED) if (both := foreseen_and_seen(3, rule))]
    assert len({forecast.completion_s for forecast in seen}) >= 3


def crowded(seed: int, goal: Goal = Goal.BALANCED, rounds_left: float = 5.0) -> State:
    """Returns jobs of several tasks of which little is known yet; some of their steps run."""
    rng = Random(f"crowded/{seed}")
    story = Story((Pool(HOST, (Unit("a"), Unit("b"))), Pool(DEVICE, (Unit("c"),))), PREDICTIVE)
    story.state.goal = goal
    for job in range(1, 6):
        story.submit()
        tasks = (wants(1), wants(2, (DEVICE,), "profile"), wants(3, (HOST,), "update"))
        load = JobLoad(tasks=tasks[: rng.randint(1, 3)], rounds_left=rounds_left)
        story.tell(ClientAttached(job, load), at=float(job))
    for stage in ("build", "profile", "update"):
        for job in range(1, 6):
            story.state.estimates.learn(job, 1, stage, 0, rng.uniform(1.0, 50.0))
    story.now = 20.0
    story.tell(RuleChosen(""))
    return story.state


@pytest.mark.parametrize("rule", [*RULES, *FIXED])
def test_simulating_is_deterministic_and_changes_nothing(rule: str) -> None:
    state = crowded(1)
    shot = snapshot(state)
    first = play(shot, named(rule))
    assert play(shot, named(rule)) == first == play(snapshot(state), named(rule))
    assert shot == snapshot(state)


def plans(state: State, goal: Goal, *, anew: bool) -> list[str | None]:
    return list(search(state, AIMS[goal].search, anew=anew))


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("seed", range(3))
def test_a_search_returns_its_order_once_at_its_end(goal: Goal, seed: int) -> None:
    state = crowded(seed, goal)
    said = plans(state, goal, anew=True)
    assert said[:-1] == [None] * (len(said) - 1)
    rule = said[-1]
    assert rule is not None
    assert named(rule).name == rule
    assert said == plans(crowded(seed, goal), goal, anew=True)


@pytest.mark.parametrize("goal", Goal)
def test_the_found_rule_is_not_worse_than_that_of_the_goal(goal: Goal) -> None:
    how = AIMS[goal].search
    for seed in range(5):
        state = crowded(seed, goal)
        found = plans(state, goal, anew=True)[-1]
        assert found is not None
        shot = snapshot(state)
        reference = play(shot, RULES["first-come"])
        scores = [how.score(play(shot, named(rule)), reference) for rule in (found, how.rules[0])]
        assert scores[0] <= scores[1] + 1e-9


def test_a_search_starts_from_the_present_order() -> None:
    """Ended jobs leave the order, new ones join it."""
    state = crowded(2)
    state.rule = order([77, 5, 3, 1], builds_first=False)
    rule = plans(state, Goal.BALANCED, anew=False)[-1]
    assert rule is not None
    assert "77" not in rule.split(" ")


def test_a_single_job_needs_no_order() -> None:
    story = Story(policy=PREDICTIVE)
    story.running(wants(1), wants(2))
    assert len(plans(story.state, Goal.BALANCED, anew=True)) <= len(RULES) + 2
    assert list(story.core.search()) == []


@pytest.mark.parametrize("rounds_left", [1e3, 1e5, 1e9])
def test_the_length_of_a_simulation_is_bounded(rounds_left: float) -> None:
    shot = snapshot(crowded(1, rounds_left=rounds_left))
    own = sum(1 for chain in shot.chains for _ in range(len(dispatching_rules.RANKS) + 2))
    assert 0 < sum(len(chain.operations) for chain in shot.chains) <= OPERATIONS_MAX + own


def test_thinning_removes_rounds_of_all_jobs_alike() -> None:
    def shares(shot: Snapshot) -> list[float]:
        by_job = [0.0] * len(shot.jobs)
        for chain in shot.chains:
            by_job[chain.job] += len(chain.operations)
        return [number / sum(by_job) for number in by_job]

    assert shares(snapshot(crowded(1, rounds_left=1e6))) == pytest.approx([0.2] * 5, abs=0.02)


def test_pools_that_share_their_unit_are_simulated_as_one() -> None:
    story = Story(ONE_CORE, PREDICTIVE)
    story.state.oracle = lambda job, task: [("build", (HOST,), 3.0), ("profile", (DEVICE,), 7.0)]
    for _ in range(2):
        story.running(wants(1))
    shot = snapshot(story.state)
    assert shot.units == [1]
    assert play(shot, RULES["shortest"]).makespan_s == 20.0


def test_an_overdue_step_is_expected_to_end_soon() -> None:
    story = Story(policy=PREDICTIVE)
    story.state.oracle = lambda job, task: [("build", (HOST,), 3.0)]
    story.running(wants(1))
    story.now = 100.0
    story.tell(RuleChosen(""))
    assert 0.0 < play(snapshot(story.state), RULES["shortest"]).makespan_s < 3.0


def test_a_client_without_a_known_build_has_no_build_pool() -> None:
    story = Story(policy=PREDICTIVE)
    story.state.oracle = lambda job, task: [("import", (HOST,), 3.0)]
    story.running(wants(1, stage="import"), wants(2, stage="import"))
    for rule in RULES.values():
        assert play(snapshot(story.state), rule).makespan_s == 6.0


# Rules ----------------------------------------------------------------------------------------------------------------


def served(rule: str, waiting: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns (job, rank) in the order of the rule."""
    key = named(rule).key
    return sorted(waiting, key=lambda it: key(RuleInput(it[1], 1.0, 1.0, 0.0, it[0], 1.0, False, 0.0)))


@pytest.mark.parametrize("jobs", [(3, 1, 2), (1,), tuple(range(30, 0, -1))])
def test_an_order_is_read_from_its_name(jobs: tuple[int, ...]) -> None:
    waiting = [(job, rank) for job in sorted(jobs) for rank in (2, 0)]
    by_job = [(job, rank) for job in jobs for rank in (0, 2)]
    by_rank = [(job, rank) for rank in (0, 2) for job in jobs]
    assert served(order(jobs, builds_first=False), waiting) == by_job
    assert served(order(jobs, builds_first=True), waiting) == by_rank


def test_jobs_outside_an_order_come_last() -> None:
    assert served(order([5, 4], builds_first=False), [(6, 0), (4, 0), (7, 0), (5, 0)]) == [
        (5, 0),
        (4, 0),
        (6, 0),
        (7, 0),
    ]


def test_rules_are_found_by_their_names() -> None:
    assert {name: named(name).name for name in RULES} == {name: name for name in RULES}
    with pytest.raises(KeyError):
        named("fastest")


def test_each_goal_has_rules() -> None:
    for aim in AIMS.values():
        assert {aim.rule, *aim.search.rules} <= RULES.keys()
    assert AIMS.keys() == set(Goal)
    assert POLICIES["predictive"].plan is not None
    assert lookahead.FIRST_COME.name in RULES
