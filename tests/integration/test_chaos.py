"""`make chaos` in short: a hundred daemons killed under ten clients, and nothing is lost, repeated or counted twice."""

import asyncio
import random
from pathlib import Path

import pytest

from chaos.run import Plan, kills

WORK = {"trials": 48, "tasks": 2, "build_s": 0.03, "profile_s": 0.08, "update_s": 0.02, "spread": 0.5}


@pytest.mark.timeout(600)
def test_a_hundred_daemons_die_and_nothing_is_lost(tmp_path: Path) -> None:
    told = asyncio.run(kills(tmp_path, Plan(kills=100, clients=10, rows=10.0, work=WORK), random.Random(1)))
    assert told["violations"] == []
    assert told["clients_that_died"] >= 1
    assert told["steps_acknowledged"] > 100
