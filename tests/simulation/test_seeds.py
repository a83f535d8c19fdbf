"""Random worlds in which clients crash, steps fail and hang, and the daemon restarts.

Safety: no unit runs two steps, each step ends once, no task waits that could start (checked after each event).
Liveness: when the faults stop, each job ends. Determinism: the same history gives the same decisions. A failure names
its seed; `python -m autosched.sim --policy P --goal G --seed N --print` shows it. `make test` tries 10,000 seeds in
this way; here the checks are stricter and the seeds few.
"""

import os
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from autosched.core.actions import StartClient, StartStep
from autosched.core.events import HostLeft, ResourcesDeclared, RuleChosen, StepEnded, UnitReturned
from autosched.core.policies.policy import INTERLEAVED, PREDICTIVE
from autosched.core.scheduler import Scheduler
from autosched.core.state import State, one_of_each
from autosched.model import Goal, JobState, Step
from autosched.sim.__main__ import main
from autosched.sim.random_testing import CHOICE, TURNS, check, finish
from autosched.sim.scenario import Faults, Scenario, random_scenario, with_hosts
from autosched.sim.simulator import Entry, Simulator
from deadlines import DEADLINE_S

CHUNK = 50


def check_nothing_waits_that_could_start(scheduler: Scheduler) -> None:
    """Checks by brute force, from the state without its indices."""
    state = scheduler.state
    if state.paused:
        return
    queues = {
        name: sorted(entry for entry in queue.heap if state.is_live(*entry[1:])) for name, queue in state.queues.items()
    }
    for queue in queues.values():
        if queue:
            task, admits = state.jobs[queue[0][2]].tasks[queue[0][3]], scheduler.policy.admits
            first_everywhere = all(queues[pool][0][2:] == (task.job, task.index) for pool in task.queued_in)
            if first_everywhere and (admits is None or admits(state, task)):
                free = [
                    [
                        u.name
                        for u in state.queues[pool].pool.units
                        if state.slots[u.name].holder is None
                        and state.is_usable(u.name)
                        and u.name not in task.load.avoid
                    ]
                    for pool in task.queued_in
                ]
                assert one_of_each(free) is None, f"task {task.index} of job {task.job} could start on {free}"


def watched(scenario: Scenario, policy: str = INTERLEAVED.name, goal: Goal = Goal.BALANCED) -> Simulator:
    """Returns a world in which everything is checked after each event."""

    def watch(scheduler: Scheduler) -> None:
        check(scheduler)
        if not world.history[-1].more:
            check_nothing_waits_that_could_start(scheduler)

    world = Simulator(scenario, CHOICE[policy], watch, goal=goal, choice=CHOICE)
    return world


@pytest.mark.parametrize(("policy", "goal"), TURNS, ids=str)
@pytest.mark.parametrize("chunk", range(2))
def test_safety_and_liveness_under_faults(chunk: int, policy: str, goal: Goal) -> None:
    for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)):
        world = watched(random_scenario(seed), policy, goal)
        try:
            finish(world)
        except AssertionError as error:
            pytest.fail(f"seed {seed}, policy {policy}, goal {goal}: {error}")
        starts = [span.started_at for span in world.spans.values()]
        assert starts == sorted(starts)


@pytest.mark.parametrize(("policy", "goal"), TURNS, ids=str)
def test_safety_and_liveness_while_hosts_come_and_go(policy: str, goal: Goal) -> None:
    happened: Counter[str] = Counter()
    for seed in range(CHUNK):
        world = watched(with_hosts(random_scenario(seed)), policy, goal)
        try:
            finish(world)
        except AssertionError as error:
            pytest.fail(f"seed {seed}, policy {policy}, goal {goal}: {error}")
        happened.update(type(entry.event).__name__ for entry in world.history)
        happened.update(
            "lost on a host"
            for entry in world.history
            if isinstance(entry.event, HostLeft) and any(isinstance(action, StartClient) for action in entry.actions)
        )
    assert min(happened[kind] for kind in ("HostJoined", "HostCutOff", "ClientPlaced", "lost on a host")) >= 5, happened


def test_every_kind_of_fault_happens() -> None:
    """Guards the tests above, which would prove less without these faults."""
    outcomes: set[str] = set()
    happened: set[str] = set()
    for seed in range(100):
        world = Simulator(random_scenario(seed), CHOICE[PREDICTIVE.name], choice=CHOICE)
        world.run()
        outcomes.update(span.outcome for span in world.spans.values())
        outcomes.update(state.value for _, state in world.ended.values())
        happened.update(type(entry.event).__name__ for entry in world.history)
        happened.update(type(action).__name__ for entry in world.history for action in entry.actions)
        happened.update(
            action.reason.split()[0] for e in world.history for action in e.actions if hasattr(action, "reason")
        )
    assert outcomes == {"done", "failed", "lost", "cancelled"}
    assert happened >= {
        "ResourcesDeclared", "JobSubmitted", "ClientAttached", "ClientLost", "StepEnded", "JobCancelRequested",
        "DeadlineReached", "PolicyChosen", "RuleChosen", "StartClient", "StopClient", "StartStep", "RevokeStep",
        "EndJob", "deadline", "step", "its",
    }  # fmt: skip


def test_devices_fall_sick_and_candidates_are_broken_in_these_worlds() -> None:
    """The world itself checks them: no blocked candidate runs, no quarantined device works."""
    returned = blocked = refused = elsewhere = 0
    for seed in range(100):
        world = Simulator(random_scenario(seed), CHOICE[PREDICTIVE.name], choice=CHOICE)
        world.run()
        returned += sum(isinstance(e.event, UnitReturned) and e.event.by == "the world" for e in world.history)
        blocked += len(world._sickness.never)
        refused += len(world._sickness.blocked)
        elsewhere += sum(
            isinstance(e.event, StepEnded) and e.event.load is not None and any(t.avoid for t in e.event.load.tasks)
            for e in world.history
        )
    assert min(returned, blocked, refused, elsewhere) >= 5, (returned, blocked, refused, elsewhere)


def test_without_faults_every_step_is_made_once() -> None:
    for seed in range(100):
        scenario = random_scenario(seed, Faults())
        world = watched(scenario)
        report = world.run()
        expected = sum(
            len(plan.before) + len(plan.after) + sum(len(steps) for task in plan.tasks for steps in task)
            for job, plan in enumerate(world.plans.values(), start=1)
            if report.states[job] is JobState.DONE
        )
        made = [span for span in report.spans if report.states[span.job] is JobState.DONE]
        assert (len(made), {span.outcome for span in made} - {"done"}) == (expected, set()), f"seed {seed}"


@pytest.mark.parametrize(("policy", "goal"), TURNS, ids=str)
def test_a_replayed_journal_gives_the_same_decisions(policy: str, goal: Goal) -> None:
    decoder = msgspec.msgpack.Decoder(Entry)
    for seed in range(20):
        world = Simulator(random_scenario(seed), CHOICE[policy], goal=goal, choice=CHOICE)
        world.run()
        journal = [msgspec.msgpack.encode(entry) for entry in world.history]
        again = Scheduler()
        for row in journal:
            entry = decoder.decode(row)
            assert again.handle(entry.now, entry.event, more=entry.more).actions == entry.actions, (
                f"seed {seed} at {entry.now}"
            )
        assert again.state == world.scheduler.state, f"seed {seed}"


def known(state: State) -> dict[str, object]:
    """Returns the state that determines further decisions, except the order of the queues, which is empty at a
    restart."""
    for task in (task for job in state.jobs.values() for task in job.tasks.values()):
        if task.waiting is not None:
            task.waiting.key = ()
    kept = ("rule", "goal", "jobs", "active", "steps", "slots", "revoked", "estimates", "last_job", "last_step")
    return {name: getattr(state, name) for name in kept}


@pytest.mark.parametrize(("policy", "goal"), TURNS, ids=str)
def test_a_replay_that_asks_no_policy_comes_to_the_same(policy: str, goal: Goal) -> None:
    """Halfway through the daemon dies: one core made all decisions, another one replays them."""
    for seed in range(40):
        world = Simulator(random_scenario(seed), CHOICE[policy], goal=goal, choice=CHOICE)
        world.run()
        lived = world.history[: len(world.history) // 2]
        decided, told = Scheduler(), Scheduler()
        for entry in lived:
            decided.handle(entry.now, entry.event, more=entry.more)
            told.handle(entry.now, entry.event, started(entry))
        now = lived[-1].now
        anew = ResourcesDeclared(world.scenario.pools, 40.0, 5.0, policy, goal)
        assert told.handle(now, anew) == decided.handle(now, anew), f"seed {seed}"
        assert known(told.state) == known(decided.state), f"seed {seed}"
        assert told.state.totals.pools == pytest.approx(decided.state.totals.pools, abs=1e-6), f"seed {seed}"


def started(entry: Entry) -> tuple[Step, ...]:
    return tuple(action.step for action in entry.actions if isinstance(action, StartStep))


def test_rules_come_and_go_in_these_worlds() -> None:
    """Guards the tests above, which would prove little about the predictive policy otherwise."""
    rules: set[str] = set()
    for seed in range(20):
        world = Simulator(random_scenario(seed), CHOICE[PREDICTIVE.name], choice=CHOICE)
        world.run()
        rules.update(entry.event.rule for entry in world.history if isinstance(entry.event, RuleChosen))
    assert "" in rules
    assert len(rules) > 3


def test_decisions_do_not_depend_on_the_hash_seed() -> None:
    def digest(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "autosched.sim", "--seeds", "25"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=DEADLINE_S,
        ).stdout

    first = digest("0")
    assert "sha256" in first
    assert digest("1") == first


def test_the_command_shows_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--print"]) == 0
    out = capsys.readouterr().out
    assert "> JobSubmitted(job=1" in out
    assert "< StartStep(" in out


def test_the_command_names_the_seed_that_failed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autosched.sim.simulator.events_max", lambda scenario: 20)
    assert main(["--seed", "3", "--policy", "sequential", "--goal", "latency"]) == 1
    assert "--policy sequential --goal latency --seed 3 --print" in capsys.readouterr().out


def test_processes_change_nothing_but_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for processes in ("1", "2"):
        assert main(["--seeds", "60", "--processes", processes]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
