"""Rules for measurements. Pure: no I/O.

Files: identity.py (which measurements are comparable), record_selection.py (which records are valid, best, final, or
measured again), task_best.py (the best record of each task, kept record by record), winner.py (the schedule that a
network is compiled with), failure_attribution.py (whether the candidate or the device caused a failure),
latency_bound.py (latencies that cannot be), network_estimate.py (latency of the network from its tasks'), statistics.py
(medians and intervals).
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autosched.recordstore.catalogue import Catalogue


def open(store: str | Path = "") -> "Catalogue":
    """Open a record store for queries over all jobs' measurements; use it in a `with` statement.

    store: URL or file; default: AUTOSCHED_RECORDS, or the store of the daemon on this machine. Raises NotFound if there
    is none, ConfigError for a wrong URL; each query raises StoreUnavailable if the database does not answer.
    """
    from autosched.api import local_daemon

    return local_daemon.catalogue(str(store) or local_daemon.named_store())
