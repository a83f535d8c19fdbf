"""Random worlds with many faults: every invariant is checked after every event, and every job must end."""

import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from autosched.core.policies.lookahead import Search
from autosched.core.policies.policy import INTERLEAVED, POLICIES, PREDICTIVE, SEQUENTIAL
from autosched.core.policies.predictive import plan
from autosched.core.scheduler import PLAN_EVERY, Scheduler
from autosched.core.state import State
from autosched.model import Goal
from autosched.sim.fault_model import QUARANTINE
from autosched.sim.scenario import random_scenario, with_hosts
from autosched.sim.simulator import Simulator

TURNS = (
    *((PREDICTIVE.name, goal) for goal in Goal),
    (INTERLEAVED.name, Goal.BALANCED),
    (SEQUENTIAL.name, Goal.BALANCED),
)
"""Policies and goals for the seeds, in turns."""
SELDOM = 6 * PLAN_EVERY


def _brief(state: State) -> Search | None:
    """Search rarely and not far ahead: the quality of a rule does not matter here, its changes do."""
    search = plan(state) if state.last_step % SELDOM < PLAN_EVERY else None
    return search and replace(search, rules=search.rules[:2], moves=1, moves_first=2)


EXCLUSIVE = {name: policy for name, policy in POLICIES.items() if not policy.shares_units}
CHOICE = EXCLUSIVE | {PREDICTIVE.name: replace(PREDICTIVE, plan=_brief)}


class Tried(msgspec.Struct):
    """Result of a range of seeds; a problem ends it."""

    events: int
    states: Counter[str]
    digest: bytes
    """Digest of all decisions."""
    failed: int | None = None
    problem: str = ""
    turn: tuple[str, Goal] = TURNS[0]
    """Policy and goal of the last seed."""


def check(scheduler: Scheduler) -> None:
    """Check all invariants, after an event."""
    scheduler.state.check_all()


def finish(world: Simulator) -> None:
    """Run a world to its end. Raises AssertionError with the violation."""
    report = world.run()
    alive = [job for job in range(1, len(world.scenario.jobs) + 1) if job not in report.states]
    assert not alive, f"the faults have stopped, but jobs {alive} never ended"
    away = [unit for unit, drained in world.scheduler.state.drained.items() if drained.reason == QUARANTINE]
    assert not away, f"{away} are well, but still quarantined"
    open_steps = [span.step for span in report.spans if span.ended_at is None]
    assert not open_steps, f"steps {open_steps} were started and never ended"


def attempt(seeds: Sequence[int], turn: tuple[str, Goal] | None, *, show: bool = False, hosts: bool = False) -> Tried:
    """Run seeds up to the first failure. `turn`: policy and goal; None: each seed has its own.

    `hosts`: with other hosts that come and go.
    """
    tried = Tried(0, Counter(), b"")
    digest = hashlib.sha256()
    for seed in seeds:
        tried.turn = policy, goal = turn or TURNS[seed % len(TURNS)]
        scenario = with_hosts(random_scenario(seed)) if hosts else random_scenario(seed)
        world = Simulator(scenario, CHOICE[policy], check, goal=goal, choice=CHOICE)
        try:
            finish(world)
        except Exception as error:  # for any exception, the seed must be named
            tried.failed, tried.problem = seed, str(error) if isinstance(error, AssertionError) else repr(error)
        for entry in world.history:
            digest.update(msgspec.msgpack.encode(entry))
        if show:
            _print(world)
        if tried.failed is not None:
            break
        tried.events += len(world.history)
        tried.states.update(state.value for _, state in world.ended.values())
    tried.digest = digest.digest()
    return tried


def _print(world: Simulator) -> None:
    for entry in world.history:
        sys.stdout.write(f"{entry.now:9.3f} > {entry.event}\n")
        sys.stdout.writelines(f"          < {action}\n" for action in entry.actions)
