"""Tables of transitions: complete, exact, and drawn in ARCHITECTURE.md."""

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from msgspec import Struct

from autosched.core import state
from autosched.core.events import ResourcesDeclared
from autosched.core.lifecycles import (
    CLIENT,
    TASK,
    Attached,
    ClientState,
    Lost,
    Moves,
    Queued,
    Running,
    TaskState,
    Waiting,
    diagram,
    follow,
)
from autosched.sim.random_testing import random_scenario, with_hosts
from autosched.sim.simulator import Simulator
from unit.core.scheduler_driver import ONE_EACH, Story

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("moves", "states"), [(CLIENT, ClientState), (TASK, TaskState)], ids=["client", "task"])
def test_each_state_has_a_row_and_each_row_leads_to_states(moves: Moves, states: object) -> None:
    assert set(moves) == set(get_args(states))
    assert all(new in moves for nexts in moves.values() for new in nexts)


def test_the_architecture_draws_the_tables() -> None:
    assert f"```mermaid\n{diagram()}\n```" in (ROOT / "ARCHITECTURE.md").read_text()


@pytest.mark.parametrize(
    ("moves", "old", "new"),
    [
        (CLIENT, Lost(), Attached()),
        (CLIENT, Queued(), Attached()),
        (TASK, Running("build", {1: None}), Waiting("build", ("host",))),
    ],
    ids=["a job that has ended", "a client that nothing has started", "a task that runs"],
)
def test_other_transitions_are_errors(moves: Moves, old: Struct, new: Struct) -> None:
    with pytest.raises(AssertionError, match="cannot follow"):
        follow(moves, old, new)


@pytest.mark.slow
def test_every_transition_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[tuple[type[Struct], type[Struct]]] = Counter()

    def noted(moves: Moves, old: Struct, new: Struct) -> None:
        seen[type(old), type(new)] += 1
        follow(moves, old, new)

    monkeypatch.setattr(state, "follow", noted)
    expected = {(old, new) for moves in (CLIENT, TASK) for old, nexts in moves.items() for new in nexts}
    story = Story()
    story.submit()
    story.tell(ResourcesDeclared(ONE_EACH, 600.0, 60.0), 1.0)  # before a host is chosen
    for seed in range(130):
        Simulator(with_hosts(random_scenario(seed))).run()
        Simulator(random_scenario(seed)).run()
    assert not expected - seen.keys()
