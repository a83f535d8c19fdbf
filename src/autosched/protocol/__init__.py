"""The methods that cross the wire, and their types. `autosched.wire` moves them; this package says what they are.

Files: method.py (base type, version, limits), handshake.py (keys and Hello), transfer.py (files and records in pieces),
jobs.py, clients.py, operations.py, diagnostics.py (the methods by subject), roles.py (who may ask what), pagination.py
(fetches answers page by page).

A method is a request struct and a result struct. Requests are named in the imperative; the tables below give the name
on the wire, which is the class name in snake_case. A peer that sends anything else gets a WireError.
"""
# ruff: noqa: F403, F405 (one namespace in seven files; mypy checks the names)

from functools import cache

from autosched.protocol.clients import *
from autosched.protocol.diagnostics import *
from autosched.protocol.handshake import *
from autosched.protocol.jobs import *
from autosched.protocol.method import *
from autosched.protocol.operations import *
from autosched.protocol.transfer import *


@cache
def wire_name(method: type[Method]) -> str:
    """`GetJob` is `get_job` on the wire."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in method.__name__).lstrip("_")


def _table(*methods: type[Method]) -> dict[str, type[Method]]:
    return {wire_name(method): method for method in methods}


USER_METHODS = _table(
    Info, PutBlob, GetBlob, GetRecords, Submit, ListJobs, GetJob, CancelJob, SetJob, HoldJob, ReleaseJob, ExplainJob,
    GetPolicy, ChoosePolicy, Pause, Resume, ListDevices, DrainUnit, ReturnUnit, FreeUnit, ListPoison, ForgivePoison,
    ListNews, ListSpans, ListIdle, ListArtifacts, ListAudit, GetFigures, ListQueues, ListStalls, ListLoopTasks, Reload,
    ConfirmReload, Heartbeat, Shutdown, Prune,
)  # fmt: skip
"""Methods of users, by name."""

CLIENT_METHODS = _table(
    Return, GetOrder, PlanNetwork, AddRecord, TagRecords, EndStep, AddArtifact, AddArtifacts, Heartbeat, PutBlob,
    GetBlob, GetRecords,
)  # fmt: skip
"""Methods of clients, by name."""

DAEMON_METHODS = _table(AskLoad, StartStep, RevokeStep, TagRecords, Poisoned, Goodbye, Stop)
"""Methods that the daemon calls at a client, by name."""

HELLO = _table(Hello, Authenticate)
"""Methods of a peer before its authentication, by name."""
