"""The place of kernels and networks: this process, a GPU, or a board through a session with its TVM RPC server.

Loads without TVM.
"""

import itertools
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from autosched.errors import DeviceLost
from autosched_tvm.compile import python_call
from autosched_tvm.tensors import Array
from autosched_tvm.tvm_types import Device, DeviceTensor, Module
from autosched_tvm.worker_failures import gist
from autosched_tvm.worker_messages import Elsewhere, OwnGpu, Remote

if TYPE_CHECKING:
    from autosched_tvm.device.gpu_place import GpuPlace

SESSION_S = 60.0
"""Minimum time limit of a session, in seconds. A kernel that hangs holds the board until the session's time is over."""
ALL_CORES = 1
"""TVM's mode of a thread pool that begins with the fastest cores."""
PROGRAM = "autosched_board.py"
"""File name on a board of a program that runs there."""


FLUSH_CPU = "cache_flush_cpu_non_first_arg"
"""TVM's function that displaces what lies in a CPU's caches."""


class Place(Protocol):
    """Where kernels run."""

    on_gpu: bool
    """Whether it is a GPU, on which no code for a CPU runs."""
    flush: str
    """Name of the function that displaces what lies in its caches, for TVM's timer."""

    @property
    def device(self) -> Any:
        """The device of the tensors, in TVM's form."""

    def load(self, path: str) -> Any:
        """Load the compiled module of a file on this machine, ready to be called."""

    def tensor(self, array: Array) -> Any:
        """A copy of an array at the place."""

    def sync(self) -> None:
        """Wait for what was called."""


class ThisProcess:
    """The cores of this process."""

    on_gpu, flush = False, FLUSH_CPU

    def sync(self) -> None:
        """Calls end with their work."""

    @cached_property
    def device(self) -> Device:
        """The device of the tensors, in TVM's form."""
        import tvm

        return tvm.cpu()

    def load(self, path: str) -> Module:
        """The compiled module of a file."""
        import tvm

        return tvm.runtime.load_module(path)

    def tensor(self, array: Array) -> DeviceTensor:
        """A copy of an array."""
        import tvm

        return tvm.runtime.tensor(array)


class BoardSession:
    """A session with a board."""

    on_gpu, flush = False, FLUSH_CPU

    _numbers = itertools.count()
    """Numbers of uploaded files: a loaded library must not be overwritten."""

    def __init__(self, remote: Remote) -> None:
        """Raises DeviceLost."""
        from tvm import rpc

        board, seconds = remote.board, max(SESSION_S, 2 * remote.lasts_s)
        self.board, self._until = board, time.monotonic() + seconds
        self._triple = remote.triple
        self._python: Any = None
        """Runs the Python program that was sent; None before the first one."""
        try:
            self._session = rpc.connect(board.host, board.port, board.key, session_timeout=seconds)
            self._session.get_function("runtime.config_threadpool")(ALL_CORES, remote.threads)
        except Exception as error:  # TVM may raise any exception
            raise DeviceLost(f"there is no session with the board: {gist(error)}") from error
        self.device = self._session.cpu(0)

    def load(self, path: str) -> Any:
        """Upload and load the compiled module of a file on this machine. The server removes it after the session."""
        name = f"{next(self._numbers)}{Path(path).suffix}"
        self._session.upload(path, name)
        return self._session.load_module(name)

    def sync(self) -> None:
        """Calls end with their work."""

    def tensor(self, array: Array) -> Any:
        """A copy of an array on the board."""
        import tvm

        return tvm.runtime.tensor(array, self.device)

    def write(self, name: str, content: bytes) -> None:
        """Write a file to the session's folder on the board."""
        self._session.upload(bytearray(content), name)

    def read(self, name: str) -> bytes:
        """Read a file in the session's folder on the board."""
        return bytes(self._session.download(name))

    def run_python(self, program: str) -> None:
        """Run a program in the process of the board's server, with a kernel that calls Python's C interface; that
        process is Python."""
        if self._python is None:
            with tempfile.TemporaryDirectory(prefix="autosched-board-") as folder:
                self._python = self.load(python_call.build(f"{folder}/python.so", PROGRAM, self._triple))["main"]
        self.write(PROGRAM, program.encode())
        self._python()

    def suits(self, remote: Remote) -> bool:
        """Whether the session is with this board, and lasts long enough for the work."""
        return self.board == remote.board and self._until - time.monotonic() > remote.lasts_s

    @property
    def lives(self) -> bool:
        """Whether the session is alive."""
        try:
            self._session.get_function("runtime.NumThreads")()
        except Exception:  # TVM may raise any exception
            return False
        return True


HERE = ThisProcess()
_gpus: list["GpuPlace"] = []
"""The GPU of this process, if it has one."""
_sessions: list[BoardSession] = []
"""The session of this process, if it has one."""


@contextmanager
def place_of(remote: Elsewhere | None) -> Iterator[Place]:
    """The place for a step: a board, through this process' session for the step; a GPU, which this process keeps; or
    this process.

    Raises DeviceLost, also for exceptions inside that are caused by the end of the session; for a GPU, also the other
    exceptions of `gpu_faults`.
    """
    if remote is None:
        yield HERE
        return
    if isinstance(remote, OwnGpu):
        from autosched_tvm.device import gpu_place  # only where a GPU is

        if not _gpus:
            _gpus.append(gpu_place.GpuPlace(remote.uuid))
        assert _gpus[0].uuid == remote.uuid, "a process has one GPU"
        with gpu_place.faults_told():
            yield _gpus[0]
        return
    if not _sessions or not _sessions[0].suits(remote):
        _sessions.clear()
        _sessions.append(BoardSession(remote))
    with losses_told():
        yield _sessions[0]


@contextmanager
def losses_told() -> Iterator[None]:
    """Raise DeviceLost for exceptions that are caused by the end of this process' session with a board; on a GPU, those
    of `gpu_faults` for errors that CUDA reports."""
    if _gpus:
        from autosched_tvm.device import gpu_place

        with gpu_place.faults_told():
            yield
        return
    try:
        yield
    except Exception as error:
        if not _sessions or _sessions[0].lives:
            raise
        _sessions.clear()
        raise DeviceLost(f"the session with the board was lost: {gist(error)}") from error
