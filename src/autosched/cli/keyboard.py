"""Reads single keys of a terminal while output is shown on it, and restores the terminal at every end."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

READ_MAX = 64
"""Maximum keys of one read."""


def heard() -> bool:
    """Whether the process has a terminal for keys."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def pressed(tell: Callable[[str], None]) -> Iterator[None]:
    """Call `tell` with each key, in the running event loop. Without a terminal as stdin and stdout, never.

    Ctrl-C stays a signal. In the background nothing is read, because that would stop the process; back in the
    foreground, keys are read again.
    """
    if not heard():
        yield
        return
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(terminal)

    def read() -> None:
        try:
            keys = os.read(terminal, READ_MAX)
        except OSError:  # the terminal was closed
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
        if _in_foreground(terminal):  # otherwise the settings are the shell's
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _in_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # the terminal was closed
        return False
