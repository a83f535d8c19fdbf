"""A task on a worker of a Dask cluster that runs one agent."""

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator

from msgspec import Struct

from autosched import user_folders
from autosched.process import isolated_python

LOOK_S = 2.0
"""Seconds between two checks whether the agent is still wanted."""
PAUSE_S = 3.0
"""Seconds after which an agent that has ended by itself is restarted."""
END_S = 15.0
"""Maximum seconds for an agent to end when told to."""


class Order(Struct, frozen=True):
    """Agents to run."""

    daemon: str
    """Address at which they reach the daemon."""
    key: str
    """Their key."""
    agents: int
    lab: str
    """Prefix of the agents' names, before their number."""
    scheduler: str = ""
    """Address of the cluster's scheduler; empty: in the file `cluster`."""
    cluster: str = ""
    """File to which the scheduler has written its address."""
    resource: str = ""
    """Resource of Dask of which each agent takes one; empty: none."""
    settings: str = ""
    """File on the workers' machines with the settings of agents; empty: none."""

    def __repr__(self) -> str:
        """Without the key: Dask logs the arguments of failed tasks."""
        return f"Order({self.daemon}, {self.lab})"

    def name(self, number: int) -> str:
        """Name of an agent."""
        return f"{self.lab}-{number}"

    @property
    def unwanted(self) -> str:
        """Name of the event that is set when the agents are not wanted any more."""
        return f"autosched-{self.lab}-unwanted"


def lend(order: Order, number: int) -> str:
    """Run one agent until it is not wanted any more; returns why it ended. Runs in a thread of a worker.

    Raises other reasons of its end, after a pause, because Dask restarts the task at once.
    """
    from distributed import Event, get_client

    try:
        unwanted = Event(order.unwanted, client=get_client())
        with _agent(order, order.name(number)) as process:
            while (code := process.poll()) is None:
                if unwanted.is_set():
                    return "it is not wanted any more"
                time.sleep(LOOK_S)
            raise RuntimeError(f"the agent ended with {code}; what it said is in the worker's log")
    except Exception:
        time.sleep(PAUSE_S)
        raise


@contextlib.contextmanager
def _agent(order: Order, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """An agent that ends with this process, because its standard input closes."""
    with tempfile.NamedTemporaryFile(prefix="autosched-key-") as key:  # readable by this user only
        key.write(order.key.encode())
        key.flush()
        folder = user_folders.state() / "autosched-agents" / name
        command = isolated_python.command("autosched", "agent", "--daemon", order.daemon, "--key", key.name)
        command += ["--name", name, "--state-dir", str(folder), "--until-stdin-closes"]
        command += ["-c", order.settings] if order.settings else []
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
