"""Keys of a terminal, one by one, while something else is shown on it; the terminal is as it was at every end."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

READ_MAX = 64
"""Keys at once; the rest comes next."""


def heard() -> bool:
    """Whether a user can press them."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def pressed(tell: Callable[[str], None]) -> Iterator[None]:
    """Tell of each key, in the event loop that runs. Where stdin and stdout are no terminal, of none.

    Ctrl-C stays a signal. In the background nothing is read, as that would stop the process; when it comes back to
    the foreground keys are heard again.
    """
    if not heard():
        yield
        return
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(terminal)

    def read() -> None:
        try:
            keys = os.read(terminal, READ_MAX)
        except OSError:  # it hung up
            keys = b""
        if not keys:
            loop.remove_reader(terminal)
        for key in keys.decode(errors="replace"):
            tell(key)

    def listen() -> None:
        if _in_foreground(terminal):
            tty.setcbreak(terminal, termios.TCSADRAIN)
            loop.add_reader(terminal, read)
        else:
            loop.remove_reader(terminal)

    loop.add_signal_handler(signal.SIGCONT, listen)
    try:
        listen()
        yield
    finally:
        loop.remove_signal_handler(signal.SIGCONT)
        loop.remove_reader(terminal)
        if _in_foreground(terminal):  # else it is the shell's
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _in_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # it hung up
        return False
