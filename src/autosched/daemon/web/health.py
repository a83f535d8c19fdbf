"""Health checks: whether the daemon is alive, and whether it accepts work; for supervisors and load balancers."""

import asyncio

from autosched.daemon.runtime import Runtime

ANSWER_S = 2.0


async def trouble(runtime: Runtime) -> str:
    """Why the daemon is not alive; empty if its loop runs, which this call shows, and its journal can write."""
    if stalled := runtime.journal.stalled:
        return stalled
    try:
        async with asyncio.timeout(ANSWER_S):
            await asyncio.shield(runtime.journal.write())
    except TimeoutError:
        return f"the journal's writer did not answer within {ANSWER_S:g} s"
    return ""
