"""The methods of the wire protocol and their types. `autosched.wire` transports them.

Files: method.py (base type, version, limits), handshake.py (keys and Hello), transfer.py (files and records in pieces),
jobs.py, clients.py, helpers.py, hosts.py, operations.py, diagnostics.py (the methods by subject), roles.py
(authorisation), pagination.py (fetches answers page by page).

A method is a request struct, which declares the role that may call it, and a result struct. Requests are named in the
imperative. The name on the wire is the class name in snake_case. A peer that sends anything else gets a WireError.
"""
# ruff: noqa: F403, F405 (one namespace in nine files; mypy checks the names)

from functools import cache

from autosched.protocol.clients import *
from autosched.protocol.diagnostics import *
from autosched.protocol.handshake import *
from autosched.protocol.helpers import *
from autosched.protocol.hosts import *
from autosched.protocol.jobs import *
from autosched.protocol.method import *
from autosched.protocol.operations import *
from autosched.protocol.transfer import *


@cache
def wire_name(method: type[Method]) -> str:
    """The name of a method on the wire: `GetJob` is `get_job`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in method.__name__).lstrip("_")


def _asked_by(asker: Asker) -> dict[str, type[Method]]:
    """The methods that one kind of peer calls, by name."""
    declared = [kind for kind in Method.__subclasses__() if kind.__module__.startswith(f"{__name__}.")]
    return {wire_name(kind): kind for kind in declared if asker in kind.askers}


HELLO = _asked_by(Asker.ANYONE)
"""Methods of a peer before its authentication, by name."""
USER_METHODS = _asked_by(Asker.USER)
"""Methods of users, by name."""
CLIENT_METHODS = _asked_by(Asker.CLIENT)
"""Methods of clients, by name."""
DAEMON_METHODS = _asked_by(Asker.DAEMON)
"""Methods that the daemon calls at a client, by name."""
AGENT_METHODS = _asked_by(Asker.AGENT)
"""Methods of agents, by name."""
HOST_METHODS = _asked_by(Asker.DAEMON_OF_AGENT)
"""Methods that the daemon calls at an agent, by name."""
