"""Where kernels and networks run: in this process, or on a board through a session with its TVM RPC server.

Loads without TVM.
"""

import itertools
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from autosched.errors import DeviceLost
from autosched_tvm.compile import python_call
from autosched_tvm.tensors import Array
from autosched_tvm.worker_failures import gist
from autosched_tvm.worker_messages import Remote

SESSION_S = 60.0
"""Minimum time limit of a session, in seconds. A kernel that hangs holds the board until the session's time is over."""
ALL_CORES = 1
"""TVM's mode of a pool of threads that begins with the fastest cores."""
PROGRAM = "autosched_board.py"
"""The name on a board of a program that is run there."""


class Place(Protocol):
    """Where kernels run."""

    @property
    def device(self) -> Any:
        """The device on which their tensors lie, as TVM names it."""

    def load(self, path: str) -> Any:
        """The compiled module of a file on this machine, ready to be called there."""

    def tensor(self, array: Array) -> Any:
        """A copy of an array there."""


class ThisProcess:
    """The cores of this process."""

    @cached_property
    def device(self) -> Any:
        """The device on which tensors lie, as TVM names it."""
        import tvm

        return tvm.cpu()

    def load(self, path: str) -> Any:
        """The compiled module of a file."""
        import tvm

        return tvm.runtime.load_module(path)

    def tensor(self, array: Array) -> Any:
        """A copy of an array."""
        import tvm

        return tvm.runtime.tensor(array)


class BoardSession:
    """A session with a board."""

    _numbers = itertools.count()
    """Numbers of uploaded files: a library that is loaded must not be overwritten."""

    def __init__(self, remote: Remote) -> None:
        """Raises DeviceLost."""
        from tvm import rpc

        board, seconds = remote.board, max(SESSION_S, 2 * remote.lasts_s)
        self.board, self._until = board, time.monotonic() + seconds
        self._triple = remote.triple
        self._python: Any = None
        """Runs the Python program that was sent there; None: not made yet."""
        try:
            self._session = rpc.connect(board.host, board.port, board.key, session_timeout=seconds)
            self._session.get_function("runtime.config_threadpool")(ALL_CORES, remote.threads)
        except Exception as error:  # TVM raises what it likes
            raise DeviceLost(f"there is no session with the board: {gist(error)}") from error
        self.device = self._session.cpu(0)

    def load(self, path: str) -> Any:
        """The compiled module of a file on this machine, which is uploaded. The server removes it after the session."""
        name = f"{next(self._numbers)}{Path(path).suffix}"
        self._session.upload(path, name)
        return self._session.load_module(name)

    def tensor(self, array: Array) -> Any:
        """A copy of an array on the board."""
        import tvm

        return tvm.runtime.tensor(array, self.device)

    def write(self, name: str, content: bytes) -> None:
        """Leave a file in the session's folder on the board."""
        self._session.upload(bytearray(content), name)

    def read(self, name: str) -> bytes:
        """The content of a file in the session's folder on the board."""
        return bytes(self._session.download(name))

    def run_python(self, program: str) -> None:
        """Run a program in the process of the board's server, by a kernel that calls Python's own C interface: that is
        what runs TVM's server."""
        if self._python is None:
            with tempfile.TemporaryDirectory(prefix="autosched-board-") as folder:
                self._python = self.load(python_call.build(f"{folder}/python.so", PROGRAM, self._triple))["main"]
        self.write(PROGRAM, program.encode())
        self._python()

    def suits(self, remote: Remote) -> bool:
        """Whether it is one with this board, and lasts as long as the work on it may take."""
        return self.board == remote.board and self._until - time.monotonic() > remote.lasts_s

    @property
    def lives(self) -> bool:
        """Whether the session goes on."""
        try:
            self._session.get_function("runtime.NumThreads")()
        except Exception:  # TVM raises what it likes
            return False
        return True


HERE = ThisProcess()
_sessions: list[BoardSession] = []
"""The session of this process, where it has one."""


@contextmanager
def place_of(remote: Remote | None) -> Iterator[Place]:
    """Where to run: on a board, through the session that this process has with it for the step, or here.

    Raises DeviceLost, also for whatever is raised inside because the session is over.
    """
    if remote is None:
        yield HERE
        return
    if not _sessions or not _sessions[0].suits(remote):
        _sessions.clear()
        _sessions.append(BoardSession(remote))
    with losses_told():
        yield _sessions[0]


@contextmanager
def losses_told() -> Iterator[None]:
    """Raise DeviceLost for whatever is raised because this process's session with a board is over."""
    try:
        yield
    except Exception as error:
        if not _sessions or _sessions[0].lives:
            raise
        _sessions.clear()
        raise DeviceLost(f"the session with the board was lost: {gist(error)}") from error
