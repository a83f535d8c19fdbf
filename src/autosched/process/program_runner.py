"""Runs a program to its end while the event loop goes on.

Python's Popen starts it (vfork). The event loop's create_subprocess_exec forks, and a daemon of 300 MB would stall for
50 ms while the kernel copies its page tables.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import BinaryIO, NamedTuple

from autosched import formatting
from autosched_runtime.control_groups import memory_limit

LOOK_S = 0.5
"""Seconds between two looks at the output of a program whose lines are passed on."""


class Ended(NamedTuple):
    """Result of a program."""

    code: int
    out: str
    err: str

    @property
    def how(self) -> str:
        """Exit code or signal, in words."""
        return how_it_ended(self.code)

    @property
    def last_words(self) -> str:
        """The last line of its error output."""
        return self.err.strip().rpartition("\n")[2]


def how_it_ended(code: int) -> str:
    """Exit code or signal, in words."""
    return f"was {killed_by(-code)}" if code < 0 else f"ended with exit code {code}"


def killed_by(number: int) -> str:
    """The signal that ended a process, in words."""
    words = f"killed by {signal.Signals(number).name}"
    if number != signal.SIGKILL:
        return words
    limit = memory_limit()
    group = f"; its control group has a limit of {formatting.size(limit)}" if limit < inf else ""
    return f"{words}, as the system does when memory runs out{group}"


async def run(
    words: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None, nice: int = 0,
    on_line: Callable[[str], None] | None = None,
) -> Ended:  # fmt: skip
    """Run a program. Raises OSError, and TimeoutError if the deadline passes first.

    `on_line`: called with each line of its output, within LOOK_S seconds.

    Processes left in its group are killed at its end, and the whole group if the deadline passes or the caller is
    cancelled. Its output goes to files, because a pipe would stay open as long as one of its children holds it.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(  # noqa: ASYNC220 - the one way that does not fork
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
        )
        with _watched(process.pid) as ended:
            try:
                if nice:
                    os.setpriority(os.PRIO_PROCESS, process.pid, nice)
                async with asyncio.timeout(timeout_s):
                    if on_line is None:
                        await ended.wait()
                    else:
                        await _pass_on(out, ended, on_line)
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)  # before it is waited for: the number is still its own
                await ended.wait()
                process.wait()
        out.seek(0)
        err.seek(0)
        return Ended(process.returncode, out.read().decode(errors="replace"), err.read().decode(errors="replace"))


async def _pass_on(out: BinaryIO, ended: asyncio.Event, on_line: Callable[[str], None]) -> None:
    """Calls `on_line` with each line of a file that a program writes, until it has ended."""
    start, last = 0, False
    while not last:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await ended.wait()
        last = ended.is_set()
        new = os.pread(out.fileno(), os.fstat(out.fileno()).st_size - start, start)
        whole = new if last else new[: new.rfind(b"\n") + 1]
        start += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            on_line(line)


@contextlib.contextmanager
def _watched(pid: int) -> Iterator[asyncio.Event]:
    """An event that is set when the child has ended."""
    loop, ended, watched = asyncio.get_running_loop(), asyncio.Event(), os.pidfd_open(pid)
    loop.add_reader(watched, ended.set)
    try:
        yield ended
    finally:
        loop.remove_reader(watched)
        os.close(watched)
