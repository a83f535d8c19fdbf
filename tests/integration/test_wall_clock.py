"""The wall clock is set by hours and by a year while steps run: leases, clients and records are unaffected."""

import asyncio
import random
from pathlib import Path

from chaos import checker, evidence, faults, run
from chaos.clock import WallClock
from chaos.lab import Lab, User


def test_nothing_is_lost_when_the_wall_clock_is_set(tmp_path: Path) -> None:
    clock, rng = WallClock(tmp_path), random.Random(1)

    async def live() -> int:
        lab = Lab(tmp_path, environment=clock.environment)
        user = User(lab, rng)
        async with run.busy(lab, user, run.Plan(clients=4, work=run.BRIEF)):
            return await faults.set_clock(lab, user, clock)

    assert asyncio.run(live()) == 0
    found = evidence.read(tmp_path)
    assert found.steps and not checker.violations(found)
