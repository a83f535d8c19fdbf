"""One core: a daemon replays the simulator's decisions from a journal, and another core makes the same decisions."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Never

import pytest

from autosched.core.actions import StartStep
from autosched.core.policies.policy import INTERLEAVED, POLICIES
from autosched.core.scheduler import Scheduler
from autosched.daemon.runtime import Runtime
from autosched.daemon.storage.job_store import TABLES
from autosched.daemon.storage.journal import Journal
from autosched.model import Step
from autosched.sim.scenario import random_scenario
from autosched.sim.simulator import Entry, Simulator

CASES = [(policy, seed) for policy in ("predictive", "interleaved", "sequential") for seed in (3, 11)]


def started(entry: Entry) -> tuple[Step, ...]:
    return tuple(action.step for action in entry.actions if isinstance(action, StartStep))


def lived(policy: str, seed: int) -> Simulator:
    """Returns a finished world with faults, restarts and cancelled jobs."""
    world = Simulator(random_scenario(seed), POLICIES[policy])
    world.run()
    assert sum(len(started(entry)) for entry in world.history) > 20
    return world


@pytest.mark.parametrize(("policy", "seed"), CASES)
def test_another_core_starts_the_same_steps_at_each_event(policy: str, seed: int) -> None:
    again = Scheduler(POLICIES[policy])
    for entry in lived(policy, seed).history:
        assert again.handle(entry.now, entry.event, more=entry.more).actions == entry.actions


@pytest.mark.parametrize(("policy", "seed"), CASES)
def test_a_replay_repeats_decisions_and_asks_no_policy(tmp_path: Path, policy: str, seed: int) -> None:
    world = lived(policy, seed)

    def asked(*_: object) -> Never:
        raise AssertionError("the policy was asked")

    async def write_and_replay() -> Runtime:
        journal = Journal(tmp_path / "db", *TABLES)
        journal.start()
        for entry in world.history[:-1]:
            journal.append(entry.now, entry.event, started(entry))
        await journal.append(world.history[-1].now, world.history[-1].event, started(world.history[-1]))
        journal.close()
        journal = Journal(tmp_path / "db", *TABLES)
        runtime = Runtime(journal, Scheduler(replace(INTERLEAVED, name="never", key=asked, admits=asked)))
        assert runtime.replay() == len(world.history)
        journal.close()
        return runtime

    runtime = asyncio.run(write_and_replay())
    assert runtime.state.jobs == world.scheduler.state.jobs
    assert runtime.state.steps == world.scheduler.state.steps
    assert runtime.state.estimates == world.scheduler.state.estimates
