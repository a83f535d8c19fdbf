"""Where a daemon is: "unix:/path/to/socket" or "tcp://host:port"."""

import os
import re

from autosched.config import Config
from autosched.errors import RequestError

UNIX, TCP = "unix:", "tcp://"
VARIABLE = "AUTOSCHED_HOST"


def default() -> str:
    """The unix socket of this user's daemon."""
    return f"{UNIX}{Config().socket}"


def named(host: str | None) -> str | None:
    """The address that the user chose, by argument or by AUTOSCHED_HOST; None when none was chosen.

    Raises RequestError for what is no address.
    """
    text = (host or os.environ.get(VARIABLE, "")).strip()
    if not text:
        return None
    if text.startswith(UNIX) and len(text) > len(UNIX):
        return text
    if text.startswith(("/", "./")):
        return UNIX + os.path.abspath(text)
    match = re.fullmatch(r"(?:tcp://)?(\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):(\d{1,5})", text)
    if match is None or not 0 < int(match[2]) < 65_536:
        raise RequestError(f"{text!r} is no address of a daemon. Write tcp://HOST:PORT or unix:/path/to/socket")
    return f"{TCP}{match[1]}:{match[2]}"


def tcp(address: str) -> tuple[str, int]:
    """Host and port of "tcp://host:port" or "host:port", without the brackets of an IPv6 host. Raises RequestError."""
    host, _, port = address.removeprefix(TCP).rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise RequestError(f"{address!r} is no address of a daemon. Write tcp://HOST:PORT or unix:/path/to/socket")
    return host.removeprefix("[").removesuffix("]"), int(port)
