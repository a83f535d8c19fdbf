"""The parts of the daemon that are shown over HTTP."""

from collections.abc import Callable

from msgspec import Struct

from autosched.daemon.access.authenticator import Authenticator
from autosched.daemon.event_stream.counters import Counters
from autosched.daemon.event_stream.recent_events import Recent
from autosched.daemon.jobs.latency_curves import Curves
from autosched.daemon.observe.usage import Usage
from autosched.daemon.operations.user_session import Services
from autosched.daemon.storage.store_reader import StoreReader


class WebServices(Struct, frozen=True):
    """Everything that the page, the metrics and the health checks read."""

    services: Services
    authenticator: Authenticator
    """Shared with the wire, so that a host with wrong keys is banned for both."""
    usage: Usage
    tally: Counters
    curves: Curves
    recent: Recent
    reader: StoreReader | None
    """None without a record store."""
    origin: str
    """Name of the daemon's own database in the record store."""
    stopping: Callable[[], bool]
