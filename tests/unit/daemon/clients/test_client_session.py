"""Sessions of clients: who is told what, and when."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from autosched.backend import Network
from autosched.daemon.clients.client_session import ClientSession, Parts
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.model import TaskInfo
from autosched.network_status import NOT_MEASURED
from autosched.protocol import PlanNetwork, ReportStatus

NETWORK = Network(tasks=(TaskInfo(task=1, name="conv", workload="w"),))


def test_the_first_report_of_each_connection_brings_what_is_known() -> None:
    """Candidates may have been blocked while the client had no connection."""
    told: list[str] = []

    async def written(*_: object) -> None:
        pass

    async def recalled(_: int) -> None:
        told.append("history")

    def connected() -> ClientSession:
        store = SimpleNamespace(plan=written, set_status=written)
        parts: Any = SimpleNamespace(
            runtime=SimpleNamespace(tell=lambda _: None),
            store=store,
            history=SimpleNamespace(recall=recalled),
            progress=ProgressRegistry(),
            attribution=SimpleNamespace(tell_all=lambda _: told.append("blocks")),
            **dict.fromkeys(("blobs", "monitor", "moved", "boards", "lookup")),
        )
        return ClientSession(1, lambda: False, cast(Parts, parts))

    async def work() -> None:
        session = connected()
        await session.handle(PlanNetwork(network=NETWORK, trials=4))
        assert told == ["history", "blocks"]
        await session.handle(ReportStatus(status=NOT_MEASURED))
        assert told == ["history", "blocks"]
        await connected().handle(ReportStatus(status=NOT_MEASURED))
        assert told == 2 * ["history", "blocks"]

    asyncio.run(work())
