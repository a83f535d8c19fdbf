"""One run: a lab, a user who keeps it busy, faults, rest, and the checker."""

import asyncio
import random
import statistics
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import checker, evidence, faults
from chaos.evidence import LOGS
from chaos.lab import Lab, User

START_S = 300.0


@dataclass(frozen=True)
class Plan:
    """How much is to go wrong."""

    kills: int
    clients: int
    kills_s: float = 3_600.0
    kills_per_client: int = 20
    """Of the daemon, for one of a client."""
    cancel_ratio: float = 0.1
    rest_s: float = 600.0
    work: dict[str, Any] = field(
        default_factory=lambda: {
            "trials": 96, "tasks": 3, "build_s": 0.3, "profile_s": 0.8, "update_s": 0.2, "spread": 0.5,
        }
    )  # fmt: skip


async def kills(folder: Path, plan: Plan, rng: random.Random) -> dict[str, Any]:
    """All of it; returns figures and violations."""
    lab = Lab(folder)
    user = User(lab, rng)
    began_at = time.monotonic()
    serving_s: list[float] = []
    try:
        await lab.start(as_program=True)
        busy = asyncio.create_task(user.keep_busy(plan.clients, plan.cancel_ratio, **plan.work))
        await at_work(lab, plan.clients)
        up_at = time.monotonic()
        for number in range(1, plan.kills + 1):
            if time.monotonic() > up_at + plan.kills_s:
                break
            if number % 50 == 0:
                print(f"{number} kills in {time.monotonic() - up_at:.0f} s", file=sys.stderr, flush=True)
            await faults.kill_daemon(lab, rng, serving_s)
            if number % plan.kills_per_client == 0:
                (await lab.serving()).close()
                await faults.kill_client(lab, user, rng)
        busy.cancel()
        with suppress(asyncio.CancelledError):
            await busy
        (await lab.serving()).close()
        killed_at = time.monotonic()
        await user.rest(plan.rest_s)
        await lab.end()
    finally:
        if lab.alive:
            await lab.end()
        lab.clean()
    found = evidence.read(folder)
    return {
        "kills": number,
        "serving_s": {"median": statistics.median(serving_s), "max": max(serving_s)},
        "seconds": {"start": up_at - began_at, "kills": killed_at - up_at, "rest": time.monotonic() - killed_at},
        **checker.counts(found),
        "violations": checker.violations(found)[:50],
    }


async def at_work(lab: Lab, clients: int) -> None:
    """Wait until so many clients have begun a step."""
    async with asyncio.timeout(START_S):
        while sum('"began"' in path.read_text() for path in (lab.folder / LOGS).iterdir()) < clients:
            await asyncio.sleep(0.2)
