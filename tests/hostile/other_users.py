"""Work in the name of other users of this machine, who need not exist: needs root."""

import encodings.idna  # noqa: F401 - a user who may not read the folder of Python cannot import it
import json
import os
from collections.abc import Callable
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
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
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
