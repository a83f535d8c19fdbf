"""``python -m autosched.launch.dask_agents FILE``: keeps agents running on the workers of a Dask cluster.

The daemon starts it with a file that has an `Order` as JSON. Each agent is one long task; Dask starts it again
elsewhere when its worker dies, and knows nothing of stages. An agent has one name wherever it runs, so that of two that
live at the same time the daemon takes one (daemon/hosts).

When its parent ends, it ends alone: the agents go on, and the next one takes them over, since a task of a known key is
not begun twice. With ``--end`` behind the file it tells the agents to end, and ends at once.
"""

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from autosched.launch.dask_task import Order, lend

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""Seconds between two looks at the tasks."""
END = "--end"
CONNECT_S = 30.0
"""Seconds within which the scheduler of the cluster answers."""
RETRIES = 1_000_000
"""How often Dask begins a task again that has failed: always."""


def _client(order: Order) -> Any:
    from distributed import Client

    where = {"address": order.scheduler} if order.scheduler else {"scheduler_file": order.cluster}
    return Client(**where, asynchronous=True, timeout=CONNECT_S, name=f"autosched {order.lab}")


async def end(order: Order) -> None:
    """Tell the agents to end."""
    from distributed import Event

    async with _client(order) as client:
        await Event(order.unwanted, client=client).set()


async def keep(order: Order, daemon: int) -> None:
    """Keep the agents running until the daemon, which is the parent of this process, has gone."""
    from distributed import Event, fire_and_forget

    async with _client(order) as client:
        unwanted = Event(order.unwanted, client=client)
        await unwanted.clear()
        resources = {order.resource: 1.0} if order.resource else None
        futures: dict[str, Any] = {}
        for number in range(order.agents):
            future = futures[order.name(number)] = client.submit(
                lend, order, number, key=f"autosched-agent-{order.name(number)}", pure=False, resources=resources,
                retries=RETRIES,
            )  # fmt: skip
            fire_and_forget(future)
        log.info("READY %d agents at the Dask scheduler %s", order.agents, client.scheduler.address)
        while os.getppid() == daemon:
            await asyncio.sleep(LOOK_S)
            if client.status != "running":
                raise RuntimeError("the Dask scheduler cannot be reached any more")
            if lost := [name for name, future in futures.items() if future.status in ("cancelled", "lost", "error")]:
                raise RuntimeError(f"the Dask scheduler gave up {', '.join(lost)}")


def main() -> None:
    """Read the order, and keep the agents running, or tell them to end."""
    daemon = os.getppid()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    try:
        order = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Order)
        asyncio.run(end(order) if END in sys.argv else keep(order, daemon))
    except ImportError as error:
        sys.exit(f"the launcher dask needs the package distributed: pip install 'autosched[dask]' ({error})")
    except (OSError, RuntimeError, msgspec.MsgspecError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
