"""Agents that lend hosts to a lab."""

from collections.abc import Iterator
from contextlib import contextmanager

from autosched.api.connection import Daemon
from autosched.model import JobId
from autosched.protocol import HostList, HostView, ListHosts
from autosched.wire import whereabouts
from deadlines import until
from integration.lab import Lab
from lent_host import LentHost, boards, lane

LEASE_S = 3.0
SETTINGS = f"[scheduler]\nhost_lease_s = {LEASE_S}\nattach_timeout_s = 30\n{lane()}{boards(1)}"
"""Settings of a daemon with one lane and one device."""
PATIENT = SETTINGS.replace(f"host_lease_s = {LEASE_S}", "host_lease_s = 60.0")
"""The same settings with a lease long enough for a daemon or agent that starts on a busy machine."""
LONG = {"trials": 40, "build_s": 0.05, "profile_s": 0.05}
"""Fields and options of a job that lasts some seconds."""


class Lender(LentHost):
    """An agent that lends a host to a lab."""

    def __init__(self, there: Lab, name: str = "lab2", folder: str = "") -> None:
        """`folder`: name of its folder, if it is not its own."""
        super().__init__(there.folder / (folder or name), name, there.address)
        self.there = there

    def view(self) -> HostView | None:
        """Returns the host as the daemon shows it; None: unknown."""
        return next((host for host in hosts(self.there) if host.host == self.name), None)

    def is_(self, state: str) -> bool:
        """Returns whether the host is in this state: here, away, or left."""
        view = self.view()
        return view is not None and view.state == state


@contextmanager
def lent(there: Lab) -> Iterator[Lender]:
    """A host that has joined."""
    made = Lender(there)
    made.start()
    try:
        until(lambda: made.is_("here"), "the host joins")
        yield made
    finally:
        made.end()


def hosts(there: Lab) -> tuple[HostView, ...]:
    """Returns all hosts that the daemon knows."""

    async def ask(daemon: Daemon) -> tuple[HostView, ...]:
        return (await daemon.link.call(ListHosts(), HostList)).hosts

    return there.ask(ask)


def hosts_of(there: Lab, job: JobId) -> set[str]:
    """Returns the hosts on which steps of the job ran."""
    return {unit.partition("@")[2] for span in there.spans() if span.job == job for unit in span.units}


def check_records(there: Lab, job: JobId, trials: int) -> None:
    """Checks that all trials are there, each once."""
    numbers = [record.number for record in there.records(job) if record.purpose.value == "trial"]
    assert len(numbers) == len(set(numbers)) == trials


def tls_address(there: Lab) -> str:
    """Returns the address at which the daemon listens with TLS."""
    return next(one for one in whereabouts.read(there.folder).addresses if one.startswith("tls://"))


def on_the_host(lender: Lender, **words: object) -> JobId:
    """Returns a job whose client runs on the lent host, with some of its trials made."""
    there = lender.there
    first = there.submit(**{**LONG, "trials": 4_000})  # the daemon's own host comes first
    job = there.submit(**{**LONG, **words})
    there.wait(job, "trials", 8)
    assert hosts_of(there, job) == {lender.name}
    there.cancel(first)
    return job
