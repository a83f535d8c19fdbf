"""Work in the name of other users of this machine, who need not exist: needs root."""

import encodings.idna  # noqa: F401 - a user who may not read the folder of Python cannot import it
import json
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

STRANGER = 61_002
"""Uid of a user with no rights here."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as other users: only root can")


def as_user(uid: int, work: Callable[..., object], *words: object) -> Any:
    """Runs `work` in a child process of a user without groups; returns its JSON result, or the words of its error."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.close(read)
            _become(uid)
            try:
                said: object = work(*words)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            os.write(write, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


@contextmanager
def beside_user(uid: int, work: Callable[..., object], *words: object) -> Iterator[None]:
    """Runs `work` in a child process of a user without groups until the block ends."""
    if (child := os.fork()) == 0:
        try:
            _become(uid)
            work(*words)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    try:
        yield
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the other user has ended before the test"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _become(uid: int) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
