"""A process beside this one that acts when a moment has come, also when this process is frozen or dead."""

import os
import struct
from collections.abc import Callable
from contextlib import suppress

_MOMENT = struct.Struct("=d")
NEVER = float("inf")


def fork(stand_by: Callable[[int], None]) -> tuple[int, int]:
    """Fork a process that runs `stand_by` with the end of a pipe on which it hears moments, and ends with it.

    To be called before there are threads. Returns the number of the process, and the end of the pipe for `tell`. Of
    the open files it keeps the standard ones alone, so that it holds no lock of this process.
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
    """Tell the moment that counts from now on."""
    with suppress(BlockingIOError):  # it is behind: then it will soon be told of a later moment
        os.write(told, _MOMENT.pack(moment))


def hear(heard: int) -> float | None:
    """The moment that was told last, in the process beside; None: the other process has ended."""
    said = os.read(heard, 4096 * _MOMENT.size)
    return float(_MOMENT.unpack(said[-_MOMENT.size :])[0]) if said else None
