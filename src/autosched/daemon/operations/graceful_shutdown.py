"""Graceful shutdown: no step starts, and the daemon stops when none runs or its time is over."""

import asyncio
import contextlib
from collections.abc import Callable

from autosched.core.events import Event, Paused
from autosched.daemon.event_stream.stream import Filter
from autosched.daemon.runtime import BY, Runtime

WHY = "the daemon finishes what runs and stops"
"""Reason of a pause that ends with the daemon. Only this text marks it in events before 2026-11-26."""
_STEPS = Filter(names=frozenset({"StepEnded"}))


async def wind_down(runtime: Runtime, limit_s: float, by: str, stop: Callable[[str], None]) -> None:
    """Wait for running steps, for a maximum time, then stop."""

    def paused() -> Event | None:
        return None if runtime.state.paused else Paused(by, WHY, until_restart=True)

    with runtime.stream.subscribe(_STEPS, waiting_max=1) as ended, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await runtime.post(paused)
            while runtime.state.steps:
                await anext(ended)
    stop(f"{by} asked for it" + (f"; steps still run after {limit_s:g} s" if runtime.state.steps else ""))


async def welcome_back(runtime: Runtime) -> None:
    """End the pause of an earlier shutdown, when the daemon starts."""
    state = runtime.state
    await runtime.post(lambda: Paused(BY) if state.paused_until_restart or state.paused == WHY else None)
