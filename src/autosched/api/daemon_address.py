"""Chooses the daemon for a command or the Python API."""

import os
import re
from typing import TYPE_CHECKING

from autosched.config import Config
from autosched.errors import RequestError

if TYPE_CHECKING:
    pass
from autosched.wire.address import SERVICE, TCP, UNIX, _no_address

VARIABLE = "AUTOSCHED_HOST"


def own() -> str:
    """The unix socket of this user's daemon."""
    return f"{UNIX}{Config().socket}"


def default() -> str:
    """Address of this user's daemon; if there is none, of the machine's, if this user may open its socket."""
    if not Config().socket.exists() and os.access(SERVICE, os.W_OK):
        return f"{UNIX}{SERVICE}"
    return own()


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
