"""A daemon with a listener of each kind on loopback, which every user of this machine reaches."""

import json

from autosched.wire.whereabouts import WHEREABOUTS
from integration.lab import BOARD, Lab

OPEN_TO_ALL = f"""listen = "127.0.0.1:0"
{BOARD}[console]
listen = "127.0.0.1:0"
"""


def whereabouts(there: Lab) -> dict[str, str]:
    """Addresses of the TCP listeners: wire, page, console."""
    known = json.loads((there.folder / WHEREABOUTS).read_text())
    return {"wire": known["addresses"][-1], "page": known["page"], "console": known["console"][-1]}


def address_of(there: Lab, listener: str) -> tuple[str, int]:
    """Host and port of a listener."""
    host, _, port = whereabouts(there)[listener].rpartition("//")[2].rstrip("/").rpartition(":")
    return host, int(port)
