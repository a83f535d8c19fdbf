"""Whether the daemon lives, and whether it can be given work: for what restarts it or sends users to it."""

import asyncio

from autosched.daemon.runtime import Runtime

ANSWER_S = 2.0


async def trouble(runtime: Runtime) -> str:
    """Why the daemon is not alive; empty when its loop turns, which it does to say this, and its journal can write."""
    if stalled := runtime.journal.stalled:
        return stalled
    try:
        async with asyncio.timeout(ANSWER_S):
            await asyncio.shield(runtime.journal.write())
    except TimeoutError:
        return f"the journal's writer did not answer within {ANSWER_S:g} s"
    return ""
