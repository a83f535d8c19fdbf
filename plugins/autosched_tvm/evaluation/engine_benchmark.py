"""Measures engines side by side, in turns, each in its own pinned process.

During an engine's turn the processes of all others are stopped: idle threads of ONNX Runtime spin for some 50 ms after
an inference, TVM's for a while too, and both would take cores from the measured engine. During its own turn an engine
spins as it does for its users. Each round draws a new order of turns, so that no engine always follows the same one.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Protocol

from msgspec import Struct, structs

from autosched.backend import RIVALS, Lease, OperatorTimes, Timing
from autosched.errors import DeviceLost, StepFailed
from autosched.process.forked_workers import Killed, Raised, TimedOut, Worker, WorkerError, Workers
from autosched.records.statistics import summarize
from autosched_tvm import worker_messages
from autosched_tvm.compile.side_file import SideFile, side_of
from autosched_tvm.device import gpu_faults
from autosched_tvm.tensors import Array
from autosched_tvm.worker_failures import gist
from autosched_tvm.worker_messages import Elsewhere, Form, Remote

ROUNDS_MIN = 3
ROUNDS_MAX = 60
CLEAR_ROUNDS = 9
"""Minimum number of samples of each contestant in a clear race: the interval leaves out the least and the greatest."""
CLEAR_WIDTH, CLEAR_RATIO = 0.04, 1.2
"""Conditions under which a race is clear: 95 % intervals no wider than this share of their medians, and medians apart
by this factor. It is five times the width, which makes a false winner unlikely although the condition is checked after
each round."""
FAR_RATIO = 10.0
"""Latency relative to the fastest above which a contestant in `few` has ROUNDS_MIN rounds; where one call is a sample,
it has those of its start only."""
TURN_S = 0.05
"""Duration of a sample in seconds; the sample is the mean of the calls within it."""
WARM_S = 0.2
"""Maximum latency in seconds of a network whose first call of a turn is left out, since caches are cold."""
SLOW_S = 2.0
"""Minimum latency in seconds of a build that is measured ROUNDS_MIN times only."""
FORMS_BUDGET_S = 2.0
"""Time for the choice among the forms of a model in seconds."""
FORMS_ROUNDS_MAX = 9
ORDER_SEED = 0
HANGS_S = 120.0
"""Seconds after which a call on a GPU counts as hanging: a sample takes a fraction of one, and a driver may start for
some."""
ON_BOARD = "not compared with another engine: on a board ONNX Runtime alone is measured, which runs no such file"
ON_GPU = "not compared with another engine: there is none here that runs on GPUs"


_LOADERS = {
    "onnxruntime": worker_messages.LOAD_ONNXRUNTIME,
    "litert": worker_messages.LOAD_LITERT,
    "pytorch": worker_messages.LOAD_PYTORCH,
}
"""Names of the functions that load the RIVALS."""


class Racer(Protocol):
    """A participant of a race."""

    name: str

    def sample(self, number: int, warm: int) -> float:
        """Returns the mean latency of `number` calls, in seconds, after `warm` unmeasured calls. Raises WorkerError."""


class EngineProcess:
    """One engine in its own process, which is stopped between two calls; or one of several engines on a board, behind
    one process that holds the session."""

    def __init__(
        self, name: str, worker: Worker, left_s: Callable[[], float], number: int | None = None, *, on_gpu: bool = False
    ) -> None:
        """`left_s` returns the seconds until the deadline of all calls. `number`: number of an engine on a board."""
        self.name, self._on_gpu = name, on_gpu
        self._worker, self._left_s, self._number = worker, left_s, number

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in order. Raises WorkerError."""
        outputs: list[Array] = self.ask(worker_messages.RUN, dict(inputs))
        return outputs

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Sets the inputs of the measured calls. Raises WorkerError."""
        self.ask(worker_messages.BIND, dict(inputs))

    def sample(self, number: int, warm: int = 0) -> float:
        """Returns the mean latency of `number` calls, in seconds, after `warm` unmeasured calls. Raises WorkerError."""
        latency_s: float = self.ask(worker_messages.SAMPLE, number, warm)
        return latency_s

    def operators(self, budget_s: float) -> OperatorTimes:
        """Returns the time of each operator of a compiled module with the bound inputs. Raises WorkerError."""
        found: OperatorTimes = self.ask(worker_messages.OPERATORS, budget_s)
        return found

    def ask(self, function: str, *arguments: Any) -> Any:
        """Calls a function in the engine's process. Raises WorkerError, and DeviceLost where the board is lost or CUDA
        reports an error."""
        if self._number is not None:
            self._call(worker_messages.CHOOSE, self._number)
            return self._call(function, *arguments)
        self._worker.thaw()
        try:
            return self._call(function, *arguments)
        finally:
            self._worker.freeze()

    def _call(self, function: str, *arguments: Any) -> Any:
        timeout_s = max(0.0, self._left_s())
        hangs = self._on_gpu and timeout_s > HANGS_S
        try:
            return self._worker.call(function, *arguments, timeout_s=HANGS_S if hangs else timeout_s)
        except WorkerError as error:
            if isinstance(error, TimedOut) and not hangs:
                raise
            if self._on_gpu and isinstance(told := gpu_faults.of_network(error), DeviceLost):
                raise told from error
            raise

    def drop(self) -> None:
        """Drops an engine on a board from its process."""
        if self._number is not None and self._worker.usable:
            with suppress(WorkerError, DeviceLost):
                self._call(worker_messages.FORGET, self._number)


class Rival(Struct, frozen=True):
    """The engine that runs the model's file, with the fastest form of the model."""

    contestant: EngineProcess
    form: str
    version: str
    expected: list[Array]
    """Outputs of the first form that it runs: the model as it is, where possible."""
    forms: tuple[Timing, ...]
    """Latencies of all forms that it runs, by their names."""


def unwatched(contest: "EngineBenchmark") -> tuple[str, ...]:
    """Returns notes for a result that was measured without a sentinel."""
    if not contest.is_remote:
        return ()
    return (
        f"the clock of {contest.board} cannot be read, and other programs there were looked for at the start of steps"
        " alone",
    )


class EngineBenchmark:
    """Processes of engines on the cores of one device. A context manager, which ends all of them."""

    def __init__(self, workers: Workers, lease: Lease, remote: Elsewhere | None = None) -> None:
        """The lease's time covers everything together. `remote`: the GPU or the board of the lease."""
        self._remote = remote
        self.board = lease.units[0] if remote is not None else ""
        """Name of the GPU or the board on which the networks run; empty: the cores of this machine."""
        self.cores = lease.cores
        self._workers, self._lease = workers, lease
        self._running: dict[EngineProcess, Worker] = {}
        self._entered = 0
        self._deadline = time.monotonic() + lease.timeout_s

    @property
    def is_remote(self) -> bool:
        """Whether the networks run on another machine."""
        return isinstance(self._remote, Remote)

    @property
    def left_s(self) -> float:
        """Returns the seconds until the deadline."""
        return self._deadline - time.monotonic()

    def __enter__(self) -> "EngineBenchmark":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for contestant in list(self._running):
            self.leave(contestant)

    def leave(self, contestant: EngineProcess) -> None:
        """Ends a contestant's process."""
        if (worker := self._running.pop(contestant, None)) is None:
            return
        if worker in self._running.values():
            contestant.drop()
        else:
            self._workers.end(worker)

    def module(self, name: str, path: Path) -> tuple[EngineProcess, SideFile]:
        """Starts a compiled module; returns its process and its side file. Raises WorkerError, RequestError,
        NotFound."""
        side, remote = side_of(path), self._remote
        if isinstance(remote, Remote):
            remote = structs.replace(remote, lasts_s=self.left_s)
        return self.enter(name, worker_messages.LOAD_MODULE, str(path), remote)[0], side

    def onnxruntime(self, name: str, model: str, *, optimised: bool = True) -> tuple[EngineProcess, Any]:
        """Starts ONNX Runtime with an ONNX file and one thread per core; returns its process and version.

        Raises WorkerError. `optimised=False` turns the graph optimisations off.
        """
        return self._rival_in("onnxruntime", name, model, optimised=optimised)

    def _rival_in(self, engine: str, name: str, model: str, *, optimised: bool = True) -> tuple[EngineProcess, Any]:
        threads = max(1, len(self.cores))
        if isinstance(self._remote, Remote):
            remote = structs.replace(self._remote, lasts_s=self.left_s)
            contestant, version = self.enter(
                name, worker_messages.LOAD_ONNXRUNTIME_THERE, model, remote.threads, remote
            )
            return contestant, str(version)
        contestant, version = self.enter(name, _LOADERS[engine], model, threads, optimised)
        return contestant, str(version)

    def enter(self, name: str, function: str, *arguments: Any) -> tuple[EngineProcess, Any]:
        """Starts an engine that "module:function" loads in its own process; returns the process and the function's
        result.

        Raises WorkerError.
        """
        number, on_board = None, self._lease.board is not None
        if on_board:  # a board serves one session at a time, which belongs to one process
            number, self._entered = self._entered, self._entered + 1
        shared = next(iter(self._running.values()), None) if on_board else None
        worker = shared or self._workers.start("engine", self._lease)
        contestant = EngineProcess(name, worker, lambda: self.left_s, number, on_gpu=bool(self._lease.gpu))
        self._running[contestant] = worker
        try:
            return contestant, contestant.ask(function, *arguments)
        except (WorkerError, StepFailed):
            self.leave(contestant)
            raise

    def rival(self, forms: Sequence[Form], inputs: Mapping[str, Array]) -> Rival | str:
        """Returns ONNX Runtime, or the engine for another file format, with its fastest form by a short race; or the
        reason why there is none."""
        if self._lease.gpu:
            return ON_GPU
        if self._lease.board is not None:
            forms = [form for form in forms if form.engine == "onnxruntime"]
            if not forms:
                return ON_BOARD
        running: dict[str, EngineProcess] = {}
        expected: list[Array] = []
        version = trouble = ""
        for form in forms:
            try:
                contestant, version = self._rival_in(form.engine, form.name, form.path)
                outputs = contestant.run(inputs)
                contestant.bind(inputs)
            except Killed:
                raise
            except WorkerError as error:
                trouble = trouble or why_none(error, RIVALS[form.engine])
                continue
            running[form.name] = contestant
            expected = expected or outputs
        found = race(list(running.values()), FORMS_BUDGET_S, rounds_max=FORMS_ROUNDS_MAX)
        if not found.timings:
            return trouble or next(iter(found.lost.values()), "no engine takes the model in any form")
        best = min(found.timings, key=lambda timing: timing.median_s)
        for name, contestant in running.items():
            if name != best.name:
                self.leave(contestant)
        winner = running[best.name]
        winner.name = next(form.engine for form in forms if form.name == best.name)
        return Rival(winner, best.name, version, expected, tuple(found.timings))


def why_none(error: WorkerError, name: str = "ONNX Runtime") -> str:
    """Returns the reason why an engine is no rival, for messages."""
    if isinstance(error, Raised) and error.kind in ("ImportError", "ModuleNotFoundError"):
        return f"{name} is not installed"
    if isinstance(error, Raised):
        return f"{name} cannot run the model: {(gist(error) if str(error) else error.kind)[:200]}"
    if isinstance(error, TimedOut):
        return f"{name} gave {error}"
    return f"{name} crashed on the model: {str(error)[:200]}"


class Result(Struct, frozen=True):
    """Result of a race."""

    timings: list[Timing]
    lost: dict[str, str]
    """Reason by contestant that crashed or gave no answer."""


@dataclass
class _Turns:
    """Samples of one contestant."""

    racer: Racer
    rounds_max: int
    first_s: list[float] = field(default_factory=list)
    """Latencies of single calls before the first round, without the very first one if there are others."""
    samples_s: list[float] = field(default_factory=list)

    @property
    def once_s(self) -> float:
        return min(self.first_s)

    @property
    def number(self) -> int:
        return max(1, int(TURN_S / max(self.once_s, 1e-9)))

    @property
    def warm(self) -> int:
        return int(self.once_s < WARM_S)

    @property
    def spent_s(self) -> float:
        return (self.number + self.warm) * sum(self.samples_s)

    def begin(self) -> None:
        self.first_s = [self.racer.sample(1, 0)]
        if self.once_s < SLOW_S:
            self.first_s = [self.racer.sample(1, 0), self.racer.sample(1, 0)]

    def hurry(self) -> None:
        """Limits the rounds of a contestant whose latency matters little."""
        self.rounds_max = min(self.rounds_max, ROUNDS_MIN)
        if self.number == 1:
            self.samples_s, self.rounds_max = list(self.first_s), len(self.first_s)

    def take(self) -> None:
        self.samples_s.append(self.racer.sample(self.number, self.warm))

    def wants(self, share_s: float) -> bool:
        """Returns whether it takes another turn."""
        done = len(self.samples_s)
        if done < min(ROUNDS_MIN, self.rounds_max):
            return True
        return done < self.rounds_max and self.once_s < SLOW_S and self.spent_s < share_s


def _are_clear(contestants: Sequence[_Turns]) -> bool:
    """Returns whether more samples would change nothing: the intervals are narrow and far apart."""
    if any(len(turns.samples_s) < CLEAR_ROUNDS for turns in contestants):
        return False
    timings = [summarize(turns.racer.name, turns.samples_s) for turns in contestants]
    if any(one.high_s - one.low_s > CLEAR_WIDTH * one.median_s for one in timings):
        return False
    medians_s = sorted(one.median_s for one in timings)
    return all(slower > CLEAR_RATIO * faster for faster, slower in pairwise(medians_s))


def race(
    racers: Sequence[Racer],
    budget_s: float,
    *,
    rounds_max: int = ROUNDS_MAX,
    few: Mapping[str, int] | None = None,
    until_clear: bool = False,
) -> Result:
    """Samples all contestants in turns, round after round, in equal shares of the budget.

    `few`: maximum number of rounds by contestant that needs less precision. `until_clear`: end as soon as the medians
    of the others are known well and far apart. Raises Killed.
    """
    draw, lost = Random(ORDER_SEED), {}
    there = [_Turns(racer, min(rounds_max, (few or {}).get(racer.name, rounds_max))) for racer in racers]
    share_s = budget_s / max(1, len(there))

    def each(wanted: list[_Turns], act: Callable[[_Turns], None]) -> None:
        draw.shuffle(wanted)
        for turns in wanted:
            try:
                act(turns)
            except Killed:
                raise
            except WorkerError as error:
                lost[turns.racer.name] = str(error)
                there.remove(turns)

    each(list(there), _Turns.begin)
    fastest_s = min((turns.once_s for turns in there), default=0.0)
    for turns in there:
        if until_clear and turns.racer.name in (few or {}) and turns.once_s > FAR_RATIO * fastest_s:
            turns.hurry()
    while wanted := [turns for turns in there if turns.wants(share_s)]:
        if until_clear and _are_clear([turns for turns in there if turns.racer.name not in (few or {})]):
            wanted = [turns for turns in wanted if turns.racer.name in (few or {})]
            if not wanted:
                break
        each(wanted, _Turns.take)
    return Result([summarize(turns.racer.name, turns.samples_s) for turns in there], lost)
