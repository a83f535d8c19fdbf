"""Writes a daemon's database, with the daemon's own code, from a simulated world."""

import asyncio
from pathlib import Path

from autosched.core.events import Event, StepEnded
from autosched.daemon.storage.job_store import TABLES, span_rows
from autosched.daemon.storage.journal import Journal
from autosched.protocol import Span
from autosched.sim.simulator import Simulator
from deadlines import DEADLINE_S


def record(world: Simulator, path: Path) -> None:
    """Records each event of a finished world, and its steps."""
    ended = {span.step: span for span in world.spans.values()}
    write(path, [(e.now, e.event) for e in world.history], list(ended.values()))


def write(path: Path, events: list[tuple[float, Event]], spans: list[Span]) -> None:
    """Writes a span with the event that ended it, or with the last event."""
    by_step = {span.step: span for span in spans}

    async def run() -> None:
        journal = Journal(path, *TABLES)
        list(journal.replay())
        journal.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                for now, event in events:
                    span = by_step.pop(event.step, None) if isinstance(event, StepEnded) else None
                    await journal.append(now, event, also=span_rows([span] if span is not None else []))
                await journal.write(*span_rows(by_step.values()))
        finally:
            journal.close()

    asyncio.run(run())
