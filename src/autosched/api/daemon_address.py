"""Chooses the daemon for a command or the Python API."""

import os
import re
from contextlib import suppress

from autosched.config import Config
from autosched.errors import Refused, RequestError
from autosched.wire import whereabouts
from autosched.wire.address import SERVICE, TCP, UNIX, _no_address

VARIABLE = "AUTOSCHED_HOST"


def own() -> str:
    """The unix socket of this user's daemon: the one that daemon.json in its state folder names, if it exists."""
    config = Config()
    with suppress(Refused):
        for address in whereabouts.read(config.state_dir).addresses:
            if address.startswith(UNIX) and os.path.exists(address.removeprefix(UNIX)):
                return address
    return f"{UNIX}{config.socket}"


def default() -> str:
    """Address of this user's daemon; if there is none, of the machine's, if this user may open its socket."""
    mine = own()
    if not os.path.exists(mine.removeprefix(UNIX)) and os.access(SERVICE, os.W_OK):
        return f"{UNIX}{SERVICE}"
    return mine


def named(host: str | None) -> str | None:
    """The address that the user chose, by argument or by AUTOSCHED_HOST; None if none was chosen.

    Raises RequestError for an invalid address.
    """
    text = (host or os.environ.get(VARIABLE, "")).strip()
    if not text:
        return None
    if text.startswith(UNIX) and len(text) > len(UNIX):
        return text
    if text.startswith(("/", "./")):
        return UNIX + os.path.abspath(text)
    match = re.fullmatch(r"(tcp://|tls://)?(\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):(\d{1,5})", text)
    if match is None or not 0 < int(match[3]) < 65_536:
        raise RequestError(_no_address(text))
    return f"{match[1] or TCP}{match[2]}:{match[3]}"
