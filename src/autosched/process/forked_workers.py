"""Child processes that call functions: warm, pinned to cores, and replaceable at any moment.

A fork server imports a module once (see `prepare`); each worker is a fork of it. The module must not start threads, so
that forking is safe. The parent enforces deadlines: it kills and replaces a worker that is frozen, stuck in native code
or dead.
"""

import importlib
import math
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import threading
import time
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Protocol

from autosched import machine
from autosched.errors import DeviceLost, StepFailed
from autosched.process import client_limits
from autosched.process.parent_death_signal import end_with_parent

JOIN_S = 5.0
LOG_TAIL_BYTES = 4_000
TEMPORARY = "tempdir"
"""Key of the configuration in which `multiprocessing` keeps its temporary folder."""
TEMPORARY_BYTES_MAX = 70
"""Maximum length of the path of the system's temporary folder, in which sockets of `multiprocessing` have paths below
the limit of 107 bytes."""
AFTER_OTHERS = -100
"""Priority of an exit handler that runs after those of `multiprocessing`'s own sockets."""
MEANINGS: dict[int, str] = {
    signal.SIGKILL: " (what the system sends when memory runs out)",
    signal.SIGILL: " (this CPU lacks an instruction that the target has; try another, for example --target x86-64-v2)",
}


_preload = ""
"""Module that the fork server imports."""


class Leased(Protocol):
    """The part of a lease that a worker needs."""

    @property
    def step(self) -> int:
        """Number of the step that holds the lease."""

    @property
    def cores(self) -> tuple[int, ...]:
        """Cores of the lease; empty: no core is reserved."""


class WorkerError(Exception):
    """A call to a worker has no result."""


class Raised(WorkerError):
    """The function raised; the worker lives, unless the exception has `ends_process`: then it cannot go on."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Died(WorkerError):
    """The process ended during the call; the message has the signal and the last output."""

    def __init__(self, message: str, signal_number: int = 0) -> None:
        """`signal_number`: the signal that ended the process; 0 if none did."""
        super().__init__(message)
        self.signal_number = signal_number


class TimedOut(WorkerError):
    """The deadline passed; the process was killed."""


class Killed(WorkerError, StepFailed):
    """The process was killed on purpose, because its step must end."""


class Worker:
    """One child process, pinned to some cores. One call at a time; `kill` from any thread."""

    def __init__(self, cores: tuple[int, ...], log: Path) -> None:
        self.cores = cores
        self.calls = 0
        self._log = log
        self._killed = False
        context = multiprocessing.get_context("forkserver")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, cores, str(log), _preload), daemon=True)
        self._process.start()
        theirs.close()
        self._dying = threading.Lock()
        self._watched = _watch(self.pid)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def usable(self) -> bool:
        """False if it has died or was killed. To be called between two calls."""
        return not self._killed and not self._line.poll() and self._process.is_alive()

    def call(self, function: str, *args: Any, timeout_s: float, processor_s: float | None = None) -> Any:
        """Call the function "module:name"; its arguments must be small. Raises a WorkerError; DeviceLost if the
        function raises that.

        `processor_s`: maximum CPU time in seconds, which other load on the machine does not shorten.
        """
        self.calls += 1
        deadline = time.monotonic() + timeout_s
        try:
            self._line.send((function, args, processor_s))
            if not self._line.poll(max(0.0, deadline - time.monotonic())):
                self._end()
                raise TimedOut(f"no answer within {timeout_s:.0f} s")
            fine, answer, ends = self._line.recv()
        except (EOFError, OSError) as error:
            by_us = self._killed
            self._kill_group()
            self._end()
            if by_us:
                raise Killed("killed, because its step had to end") from error
            if self._process.exitcode == -signal.SIGXCPU:
                raise TimedOut(f"more than {processor_s:g} s of processor time") from error
            if taken := machine.forbidden(self.cores):
                raise DeviceLost(machine.cores_taken(taken)) from error
            raise Died(self._last_words(), max(0, -(self._process.exitcode or 0))) from error
        if ends:
            self._end()
        if not fine:
            kind, message, lost = answer
            raise DeviceLost(message) if lost else Raised(kind, message)
        return answer

    def freeze(self) -> None:
        """Stop all threads of the process until `thaw`, so that it uses no CPU time between two calls."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process continue."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        with self._dying, suppress(ProcessLookupError):
            if self._watched >= 0:
                signal.pidfd_send_signal(self._watched, number)

    def kill(self) -> None:
        """Kill the process and its children at once. One that has ended long ago is left alone: its number may be
        another's."""
        self._killed = True
        with self._dying, suppress(ProcessLookupError):
            if self._watched >= 0:
                signal.pidfd_send_signal(self._watched, signal.SIGKILL)
                self._kill_group()

    def _kill_group(self) -> None:
        """Kill the processes that it has started, while its process group is still its own."""
        with suppress(ProcessLookupError):  # it may not be the leader of its group yet
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """End an idle worker."""
        self._end()

    def _end(self) -> None:
        self.kill()
        self._process.join(JOIN_S)
        self._line.close()
        with self._dying:
            if self._watched >= 0:
                os.close(self._watched)
            self._watched = -1

    def _last_words(self) -> str:
        code = self._process.exitcode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = signal.Signals(-code).name
            how += MEANINGS.get(-code, "")
        return f"the process ended with {how}{self._complaint()}"

    def _complaint(self) -> str:
        """The most informative line of its log."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - LOG_TAIL_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        if any(client_limits.NO_MEMORY in line for line in lines):
            return f": {client_limits.out_of_memory()}"
        telling = [line.strip() for line in lines if "error" in line.lower()]
        return f": {telling[-1][:500]}" if telling else ""


def _watch(pid: int) -> int:
    """A file descriptor of the process, which never means another one; -1 if it has ended."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1


class Workers:
    """All workers of one job, by role and cores; busy ones also by lease."""

    def __init__(self, logdir: Path, *, recycle_after: int) -> None:
        self._logdir = logdir
        self._recycle_after = recycle_after
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, tuple[int, ...]], Worker] = {}
        self._busy: dict[Worker, Leased] = {}
        self._killed: set[int] = set()
        """Steps whose leases were killed."""
        self._started = 0

    def call(
        self,
        role: str,
        lease: Leased,
        function: str,
        *args: Any,
        timeout_s: float,
        processor_s: float | None = None,
        cores: tuple[int, ...] | None = None,
    ) -> Any:
        """Call a function for a lease in the warm worker of a role on its cores, or on some of them (`cores`).

        Raises a WorkerError.
        """
        worker = self._take(role, lease, lease.cores if cores is None else cores)
        try:
            return worker.call(function, *args, timeout_s=timeout_s, processor_s=processor_s)
        finally:
            self._put_back(role, worker)

    def once(self, lease: Leased, function: str, *args: Any, timeout_s: float) -> Any:
        """Call a function in a separate process, which ends with it and leaves nothing behind."""
        worker = self.start("once", lease)
        try:
            return worker.call(function, *args, timeout_s=timeout_s)
        finally:
            self.end(worker)

    def start(self, role: str, lease: Leased) -> Worker:
        """A worker for the caller's exclusive use on the cores of a lease, until the caller passes it to `end`. Raises
        Killed."""
        return self._register(Worker(lease.cores, self._log_path(role)), lease)

    def end(self, worker: Worker) -> None:
        """End a worker of `start`."""
        with self._lock:
            self._busy.pop(worker, None)
        worker.close()

    def dismiss(self, role: str) -> None:
        """End the idle workers of a role."""
        with self._lock:
            keys = [key for key in self._idle if key[0] == role]
            idle = [self._idle.pop(key) for key in keys]
        for worker in idle:
            worker.close()

    def kill(self, lease: Leased | None = None) -> None:
        """Kill the workers of a lease, including those that are about to start; without a lease, all workers."""
        with self._lock:
            self._killed.update(one.step for one in ([lease] if lease is not None else self._busy.values()))
            doomed = [worker for worker, holder in self._busy.items() if lease is None or holder.step == lease.step]
            for worker in [*doomed, *(self._idle.values() if lease is None else ())]:
                worker.kill()

    def _take(self, role: str, lease: Leased, cores: tuple[int, ...]) -> Worker:
        with self._lock:
            worker = self._idle.pop((role, cores), None)
            usable = worker is not None and worker.usable and worker.calls < self._recycle_after
            if worker is not None and usable and lease.step not in self._killed:
                self._busy[worker] = lease
                return worker
        if worker is not None:
            worker.close()
        return self._register(Worker(cores, self._log_path(role)), lease)

    def _register(self, worker: Worker, lease: Leased) -> Worker:
        with self._lock:
            if lease.step not in self._killed:
                self._busy[worker] = lease
                return worker
        worker.close()
        raise Killed("killed, because its step had to end")

    def _put_back(self, role: str, worker: Worker) -> None:
        with self._lock:
            self._busy.pop(worker, None)
            rival = self._idle.get((role, worker.cores))
            if worker.usable and rival is None:
                self._idle[role, worker.cores] = worker
                return
        worker.close()

    def _log_path(self, role: str) -> Path:
        self._logdir.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._started += 1
            return self._logdir / f"{role}-{self._started}.log"


def prepare(preload: str) -> None:
    """Set the module that the fork server imports, and start the server; call before the first worker.

    The server imports the module while the caller goes on.

    The module's function `settle(cores)` is called in each new worker, after it was pinned to these cores.
    """
    global _preload
    _preload = preload
    # read when numpy is imported: no helper threads in the fork server
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    multiprocessing.get_context("forkserver").set_forkserver_preload([preload])
    _shorten_temporary_folder()
    forkserver.ensure_running()


def _shorten_temporary_folder() -> None:
    """Name the folder of `multiprocessing`'s sockets by its open descriptor, if its path is too long for sockets.

    There is no public name for it: `multiprocessing.util.get_temp_dir` reads this entry of the configuration.
    """
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    if len(os.fsencode(tempfile.gettempdir())) <= TEMPORARY_BYTES_MAX or TEMPORARY in config:
        return
    folder = tempfile.mkdtemp(prefix="pymp-")
    config[TEMPORARY] = f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)}"
    Finalize(None, shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True}, exitpriority=AFTER_OTHERS)


# In the child ---------------------------------------------------------------------------------------------------------


def _serve(line: Connection, cores: tuple[int, ...], log: str, preload: str) -> None:
    """Answer calls until the pipe closes."""
    # It may be named by a descriptor, which only the parent has.
    multiprocessing.current_process()._config.pop(TEMPORARY, None)  # type: ignore[attr-defined]
    _settle(cores, log)
    if preload:
        with suppress(ImportError):  # the first call raises it again, and its caller can name the missing package
            importlib.import_module(preload).settle(cores)
    while True:
        try:
            function, args, processor_s = line.recv()
        except EOFError:
            return
        os.ftruncate(2, 0)
        _limit(processor_s)
        try:
            answer = (True, _find(function)(*args), False)
        except Exception as error:  # process boundary: the parent decides what it means
            message = client_limits.explained(error) or str(error)
            told = type(error).__name__, message[:20_000], isinstance(error, DeviceLost)
            answer = (False, told, getattr(error, "ends_process", False))
        line.send(answer)


def _limit(processor_s: float | None) -> None:
    """End this process by SIGXCPU after more CPU time than this, in seconds."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = hard if processor_s is None else math.ceil(time.process_time() + processor_s)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _find(function: str) -> Any:
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


def _settle(cores: tuple[int, ...], log: str) -> None:
    """Die with the parent, detach from its terminal, stay on the cores."""
    end_with_parent()
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # candidates crash; each core file would have half a gigabyte
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    client_limits.limit()
    machine.pin(cores)
