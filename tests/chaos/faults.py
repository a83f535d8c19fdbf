"""What goes wrong, one function a fault. Each returns what is to be known of it: how soon it was noticed, and so on."""

import asyncio
import os
import random
import signal
import time

from chaos.evidence import Life
from chaos.lab import POLL_S, Lab, User

ROWS = 20
"""Rows that the daemon writes between two kills, on average. Counted in rows, a moment is as random on a busy machine:
now only some clients have come back, now all of them, and steps have ended."""
ROWS_S = 2.0
"""It is not waited longer for them."""
EARLY = 0.25
"""So many daemons are killed before they serve."""
PROGRAMS = 0.1
"""So many are started as a program; the others are forks, since the imports are not what is tested."""
FIND_S = 20.0


async def kill_daemon(lab: Lab, rng: random.Random, serving_s: list[float]) -> None:
    """Kill -9 at any moment of its life, its start included; then there is another one."""
    if rng.random() < EARLY and serving_s:
        await asyncio.sleep(rng.uniform(0.0, 1.2) * min(serving_s))
    else:
        began_at = time.monotonic()
        (await lab.serving()).close()
        serving_s.append(time.monotonic() - began_at)
        await _rows(lab, round(rng.expovariate(1 / ROWS)))
    assert lab.alive, f"the daemon ended by itself: {lab.last_words()}"
    await lab.end(signal.SIGKILL)
    lab.spawn(as_program=rng.random() < PROGRAMS)


async def _rows(lab: Lab, count: int) -> None:
    """Wait until the journal has so many rows more."""
    until, most = time.monotonic() + ROWS_S, lab.rows() + count
    while lab.rows() < most and time.monotonic() < until:
        await asyncio.sleep(POLL_S / 4)


async def kill_client(lab: Lab, user: User, rng: random.Random) -> None:
    """Kill -9 of a client in the midst of a step."""
    os.kill((await in_a_step(lab, user, rng)).pid, signal.SIGKILL)


async def in_a_step(lab: Lab, user: User, rng: random.Random) -> Life:
    """A client that has just begun a step."""
    async with asyncio.timeout(FIND_S):
        while True:
            for name in rng.sample(sorted(user.active.values()), len(user.active)):
                if (found := lab.clients(name)) and any(step.ended_at is None for step in found[-1].steps):
                    return found[-1]
            await asyncio.sleep(POLL_S)
