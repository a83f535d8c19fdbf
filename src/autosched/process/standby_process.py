"""A sibling process that acts when a moment has passed, even if this process is frozen or dead."""

import os
import struct
from collections.abc import Callable
from contextlib import suppress

_MOMENT = struct.Struct("=d")
NEVER = float("inf")


def fork(stand_by: Callable[[int], None]) -> tuple[int, int]:
    """Fork a process that runs `stand_by` with the read end of a pipe for moments, and ends with it.

    To be called before any thread exists. Returns the process id, and the write end of the pipe for `tell`. The sibling
    keeps only the standard files open, so that it holds no lock of this process.
    """
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.closerange(3, heard)
            os.closerange(heard + 1, os.sysconf("SC_OPEN_MAX"))
            stand_by(heard)
        finally:
            os._exit(0)
    os.close(heard)
    os.set_blocking(told, False)
    return pid, told


def tell(told: int, moment: float) -> None:
    """Send the moment that counts from now on."""
    with suppress(BlockingIOError):  # the sibling lags behind, and will soon get a later moment
        os.write(told, _MOMENT.pack(moment))


def hear(heard: int) -> float | None:
    """The last moment that was sent, in the sibling; None if this process has ended."""
    said = os.read(heard, 4096 * _MOMENT.size)
    return float(_MOMENT.unpack(said[-_MOMENT.size :])[0]) if said else None
