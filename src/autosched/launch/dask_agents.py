"""``python -m autosched.launch.dask_agents FILE``: keeps agents running on the workers of a Dask cluster.

The daemon starts it with a file that contains an `Order` as JSON. Each agent is one long task; Dask restarts it on
another worker when its worker dies, and does not schedule stages. An agent has the same name on any worker, so that the
daemon accepts only one of two that live at the same time (daemon/hosts).

When its parent ends, only this process ends: the agents continue, and the next one adopts them, because a task of a
known key is not started twice. With ``--end`` after the file it tells the agents to end, and ends at once.
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
"""Seconds between two checks of the tasks."""
END = "--end"
CONNECT_S = 30.0
"""Maximum seconds until the scheduler of the cluster answers."""
RETRIES = 1_000_000
"""Number of times that Dask restarts a failed task: always."""


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
    """Keep the agents running until the daemon, the parent of this process, has ended."""
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
