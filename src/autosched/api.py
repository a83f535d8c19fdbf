"""The Python API: a model is loaded, tuned, compiled; what comes out is a module that runs.

    model = autosched.load_model("net.onnx", shapes={"x": (1, 3, 48, 320)})
    tuned = model.tune(trials=400)
    module = tuned.compile().save("net-tuned")
    module.run(x)

Each step returns the only type that has the next one. Every method that waits has an `_async` twin. Work is done by
a daemon: the one at ``daemon="tcp://host:port"`` or AUTOSCHED_HOST, else this user's own, which is started when none
runs.
"""

import asyncio
import re
import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import msgspec

from autosched import children, config, remote, results
from autosched.backend import Evaluation, Timing
from autosched.client import visitor
from autosched.config import Config
from autosched.errors import DaemonUnreachable, NotFound, RequestError
from autosched.model import DEFAULT_BACKEND, NETWORK_TASK, Goal, JobId, JobSpec, Record, TaskLoad
from autosched.protocol import JobView, PolicyView
from autosched.remote import Daemon
from autosched.wire import address, blobs

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
MODULE_CHILD = "autosched.tvm.module"
EVALUATE_EXTRA_S = 60.0
"""To start the process, load the module and finish the inference under way."""
Option = bool | int | float | str
Told = Callable[[str], None]
"""Told in a sentence what is being done; for people."""
Watch = Callable[[JobView], None]
"""Called with the job whenever it changed."""


def load_model(path: str | Path, shapes: Mapping[str, Sequence[int]] | None = None) -> "Model":
    """Name a model's file and the shapes of its dynamic inputs. Raises RequestError when it cannot be read.

    Only the file is looked at; whether it can be tuned is found out by the job's first step. The backends on TVM read
    ONNX; what a model is for another one, it says itself.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            first = file.read(1)
    except OSError as error:
        what = "is a folder, not the file of a model" if path.is_dir() else f"cannot be read: {error.strerror}"
        raise RequestError(f"{path} {what}. Name the file of your network, MODEL.onnx") from None
    if not first:
        raise RequestError(f"{path} is empty, so it is no model. Export or fetch it again")
    checked = {name: tuple(int(extent) for extent in shape) for name, shape in (shapes or {}).items()}
    for name, shape in checked.items():
        if any(extent < 1 for extent in shape):
            raise RequestError(f"the shape of input {name!r} is {shape}: every extent must be 1 or more")
    return Model(path.absolute(), checked)


def load_module(path: str | Path) -> "Module":
    """A compiled module: its .so file, or the folder it lies in. Raises NotFound or RequestError."""
    path = Path(path)
    if path.is_dir():
        found = sorted(path.glob("*.so"))
        if len(found) != 1:
            raise RequestError(f"{path} holds {len(found)} modules (.so): name one of them")
        path = found[0]
    if not path.is_file():
        raise NotFound(f"there is no module {path}. `autosched tune` leaves one in its output folder")
    if path.suffix != ".so":
        raise RequestError(f"{path} is no compiled module (.so). Make one:  autosched tune MODEL.onnx")
    if not path.with_suffix(".json").is_file():
        raise RequestError(
            f"{path.with_suffix('.json')} is missing: it belongs to {path.name}. Copy both files together"
        )
    return Module(path.absolute())


def policy(name: str | None = None, *, goal: Goal | str | None = None, daemon: str | None = None) -> PolicyView:
    """Who goes next in a daemon. With a name or a goal, let that decide until the daemon starts again."""
    return _wait(policy_async(name, goal=goal, daemon=daemon))


async def policy_async(
    name: str | None = None, *, goal: Goal | str | None = None, daemon: str | None = None
) -> PolicyView:
    """The same for coroutines."""
    if goal is not None and goal not in list(Goal):
        raise RequestError(f"no goal is named {goal!r}; there are: {', '.join(Goal)}")
    async with connected(daemon, start=False) as connection:
        if name is None and goal is None:
            return await connection.policy()
        return await connection.choose_policy(name, Goal(goal) if goal is not None else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to tune; `None` for `trials` is the backend's default."""

    trials: int | None = None
    target: str = "auto"
    device: str = "cpu"
    backend: str = DEFAULT_BACKEND
    seed: int = 0
    options: Mapping[str, Option] = field(default_factory=dict)
    output: Path | None = None
    priority: int = 0  # -100 to 100; higher goes first
    deadline_s: float | None = None  # the job should be done so long after its submission
    step_timeout_s: float | None = None  # no step is killed before it has taken so long
    labels: Mapping[str, str] = field(default_factory=dict)  # by which jobs are found again

    def spec(self, model: "Model", sha256: str) -> JobSpec:
        """The job to submit."""
        return JobSpec(
            name=model.name, file=model.file, model=sha256, shapes=dict(model.shapes), target=self.target,
            device=self.device, backend=self.backend, trials=self.trials, seed=self.seed, options=dict(self.options),
            output=str(self.output or ""), priority=self.priority, deadline_s=self.deadline_s,
            step_timeout_s=self.step_timeout_s, labels=dict(self.labels),
        )  # fmt: skip


class _Ordered:
    """Says what to do first when a step of the chain is asked of the wrong type."""

    _instead: Mapping[str, str] = {}

    if not TYPE_CHECKING:  # a type checker refuses the attribute by itself

        def __getattr__(self, name: str) -> NoReturn:
            kind = type(self).__name__
            if name in self._instead:
                raise AttributeError(f"a {kind} has no {name!r}: {self._instead[name]}")
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")


@dataclass(frozen=True)
class Model(_Ordered):
    """A network that is not tuned."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    _instead = dict.fromkeys(
        ("compile", "run", "evaluate", "save"), "tune it first, model.tune().compile() gives a Module that has it"
    )

    @property
    def name(self) -> str:
        """The file's name without its ending, with nothing in it that a file name should not have."""
        return re.sub(r"[^A-Za-z0-9_.-]+", "_", self.path.stem).strip(".-")[:100] or "model"

    @property
    def file(self) -> str:
        """The same with its ending, by which a backend may tell what it is."""
        return self.name + re.sub(r"[^A-Za-z0-9_.-]+", "_", self.path.suffix)[:20]

    def tune(self, *, daemon: str | None = None, watch: Watch | None = None, **settings: Any) -> "TunedModel":
        """Tune, and wait for it. Keywords as in `Settings`. Raises JobFailed, JobCancelled, DaemonUnreachable."""
        return _wait(self.tune_async(daemon=daemon, watch=watch, **settings))

    async def tune_async(
        self, *, daemon: str | None = None, watch: Watch | None = None, **settings: Any
    ) -> "TunedModel":
        """The same for coroutines."""
        job = await self.submit_async(daemon=daemon, **settings)
        return await job.wait_async(watch=watch)

    def submit(self, *, daemon: str | None = None, **settings: Any) -> "Job":
        """Start tuning; returns as soon as the job is accepted."""
        return _wait(self.submit_async(daemon=daemon, **settings))

    async def submit_async(self, *, daemon: str | None = None, **settings: Any) -> "Job":
        """The same for coroutines."""
        wanted = _settings(settings)
        if wanted.output is not None:
            results.prepare(wanted.output)
        async with connected(daemon) as connection:
            return Job(await submit(connection, self, wanted), daemon, wanted.output)


@dataclass(frozen=True)
class Job(_Ordered):
    """A job that a daemon has accepted. It goes on whether or not this object lives."""

    id: JobId
    daemon: str | None = None
    output: Path | None = None

    _instead = dict.fromkeys(("compile", "run", "evaluate", "save"), "wait for it first, job.wait() gives a TunedModel")

    def wait(self, *, watch: Watch | None = None) -> "TunedModel":
        """Wait for the end. Raises JobFailed or JobCancelled."""
        return _wait(self.wait_async(watch=watch))

    async def wait_async(self, *, watch: Watch | None = None) -> "TunedModel":
        """The same for coroutines."""
        holder = None
        async with connected(self.daemon) as connection:
            async for view in connection.follow(self.id):
                if watch is not None:
                    watch(view)
            results.check_ended(view)
            folder = self.output
            if folder is None:
                holder = _Folder()
                folder = holder.path
            return TunedModel(await results.collect(connection, view, folder), holder)

    def view(self) -> JobView:
        """Where the job stands."""
        return _wait(self.view_async())

    async def view_async(self) -> JobView:
        """The same for coroutines."""
        async with connected(self.daemon) as connection:
            return await connection.job(self.id)

    def cancel(self) -> None:
        """Stop it; its records are kept."""
        _wait(self.cancel_async())

    async def cancel_async(self) -> None:
        """The same for coroutines."""
        async with connected(self.daemon) as connection:
            await connection.cancel(self.id)


class _Folder:
    """A temporary folder that goes when nothing refers to it any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="autosched-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class TunedModel(_Ordered):
    """A network whose tasks are tuned."""

    result: results.Result
    holder: _Folder | None = field(default=None, repr=False, compare=False)  # kept while this object lives

    _instead = dict.fromkeys(("run", "evaluate", "save"), "compile it first, tuned.compile() gives a Module")

    @property
    def job(self) -> JobView:
        """The job as it ended: tasks, trials, failures."""
        return self.result.report.job

    @property
    def evaluation(self) -> Evaluation | None:
        """Default, tuned and reference latency side by side, and whether the outputs are equal."""
        return self.result.report.evaluation

    @property
    def records(self) -> list[Record]:
        """All trials, in the order in which they were measured."""
        lines = (self.result.folder / results.RECORDS).read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Record) for line in lines]

    def compile(self) -> "Module":
        """The network compiled with the best schedules. Raises RequestError when the backend compiles nothing."""
        if (path := self.result.module) is None:
            raise RequestError(f"the backend {self.job.backend!r} makes no module; tune with backend 'ansor'")
        return Module(path, self.holder)

    async def compile_async(self) -> "Module":
        """The same for coroutines."""
        return self.compile()


@dataclass(frozen=True)
class Module(_Ordered):
    """A compiled network: a shared library, and a JSON file that says what goes in and comes out."""

    path: Path
    holder: _Folder | None = field(default=None, repr=False, compare=False)

    _instead = dict.fromkeys(("tune", "compile"), "it is compiled already; tune the Model again to get another")

    def save(self, folder: str | Path) -> "Module":
        """Copy it, and the report that lies beside it, into a folder; returns the copy. Raises RequestError."""
        target = results.prepare(Path(folder))
        names = [self.path.name, self.path.with_suffix(".json").name, results.RECORDS, results.REPORT, results.PAGE]
        try:
            for source in (self.path.with_name(name) for name in names):
                if source.is_file() and source.parent != target:
                    shutil.copy2(source, target)
        except OSError as error:
            why = "the disk is full" if blobs.is_full_disk(error) else error.strerror
            raise RequestError(f"the module could not be saved to {target}: {why}. Choose another folder") from None
        return Module(target / self.path.name)

    def run(self, inputs: "Inputs") -> "list[np.ndarray[Any, Any]]":
        """One inference in this process: NumPy arrays in (by name, in order, or the only one) and out, in order.

        Raises RequestError for inputs that do not fit, and when TVM is not installed.
        """
        one = hasattr(inputs, "dtype")  # asked so because importing NumPy is left to those who have it
        outputs: list[Any] = _loaded(self.path).run([inputs] if one else inputs)
        return outputs

    async def run_async(self, inputs: "Inputs") -> "list[np.ndarray[Any, Any]]":
        """The same for coroutines, in a thread."""
        return await asyncio.to_thread(self.run, inputs)

    def evaluate(self, **words: Any) -> Timing:
        """Measure the latency of one inference. Keywords as in `evaluate_async`."""
        return _wait(self.evaluate_async(**words))

    async def evaluate_async(
        self, *, daemon: str | None = None, device: str = "cpu", budget_s: float = 5.0, inputs: Sequence[str] = (),
        told: Told | None = None,
    ) -> Timing:  # fmt: skip
        """Measure in a child process on the device's cores, for about `budget_s` seconds, on random inputs or files.

        Where a daemon runs, its lease on the device is waited for and held: no job's measurement is disturbed.
        """
        words = ["evaluate", str(self.path), "--budget-s", str(budget_s)]
        for text in inputs:
            words += ["--input", text]

        async def measure(cores: Sequence[int]) -> Timing:
            pinned = ["--cores", ",".join(map(str, cores))] if cores else []
            answer = await children.ask(MODULE_CHILD, [*words, *pinned], timeout_s=budget_s + EVALUATE_EXTRA_S)
            return msgspec.convert(answer["timing"], Timing)

        try:
            async with connected(daemon, start=False) as connection:
                return await self._leased(connection, device, budget_s, lambda order: measure(order.cores), told)
        except DaemonUnreachable:
            if address.named(daemon) is not None:
                raise
        if told is not None:
            told("No daemon runs: measuring without a lease; other programs on this machine may disturb it.")
        return await measure(_cores(f"{config.DEVICE_POOL}{device}"))

    async def _leased(
        self, daemon: Daemon, device: str, budget_s: float, work: visitor.Work[Timing], told: Told | None
    ) -> Timing:
        name = f"evaluate-{self.path.stem}"[:200]
        spec = JobSpec(name=name, model="0" * 64, device=device, backend="none", external=True)
        limit_s = 2 * budget_s + EVALUATE_EXTRA_S
        load = TaskLoad(
            task=NETWORK_TASK, resources_next=(f"{config.DEVICE_POOL}{device}",), stage_next="evaluate",
            expected_s=budget_s, timeout_s=limit_s,
        )  # fmt: skip

        def waiting(job: JobId) -> None:
            if told is not None:
                told(f"Waiting for device {device} as job {job}. Why:  autosched explain {job}")

        where = (await daemon.info()).address or daemon.address
        return await visitor.visit(daemon.link, where, spec, load, work, waiting=waiting)

    async def save_async(self, folder: str | Path) -> "Module":
        """The same for coroutines."""
        return await asyncio.to_thread(self.save, folder)


def _cores(pool: str) -> tuple[int, ...]:
    """The cores that a daemon with default settings would give to the first unit of a pool; none when unknown."""
    pools = config.resources(Config()).pools
    return next((found.units[0].cores for found in pools if found.name == pool), ())


Inputs: TypeAlias = "Mapping[str, np.ndarray[Any, Any]] | Sequence[np.ndarray[Any, Any]] | np.ndarray[Any, Any]"


@cache
def _loaded(path: Path) -> Any:
    """The module in this process; loaded once."""
    try:
        from autosched.tvm.module import Module as LoadedModule
    except ImportError as error:
        raise RequestError(children.INSTALL) from error
    return LoadedModule(path)


# Shared with the command line -----------------------------------------------------------------------------------------


@asynccontextmanager
async def connected(
    daemon: str | None = None, *, start: bool = True, told: Told | None = None, serve: Sequence[str] = ()
) -> AsyncIterator[Daemon]:
    """A connection to the daemon that is meant; this user's own is started if it does not run and `start` is true.

    `serve`: options of `autosched serve` for the one that is started.
    """
    chosen = address.named(daemon)
    try:
        connection = await Daemon.connect(chosen or address.default())
    except DaemonUnreachable:
        if chosen is not None or not start:
            raise
        if told is not None:
            told(f"No daemon at {address.own()}: starting a private one; it ends when it has nothing to do.")
        connection = await remote.start_on_demand(address.own(), Config().state_dir, serve)
    try:
        yield connection
    finally:
        connection.close()


async def submit(daemon: Daemon, model: Model, settings: Settings, progress: blobs.Progress | None = None) -> JobId:
    """Upload a model and submit the job."""
    sha256 = await daemon.upload(model.path, progress)
    return (await daemon.submit(settings.spec(model, sha256))).job


def _settings(words: Mapping[str, Any]) -> Settings:
    try:
        settings = Settings(**words)
    except TypeError:
        known = Settings.__dataclass_fields__
        unknown = ", ".join(sorted(set(words) - set(known)))
        raise RequestError(f"there is no setting {unknown}; there are: {', '.join(known)}") from None
    if settings.trials is not None and settings.trials < 1:
        raise RequestError(f"trials is {settings.trials}: at least 1 is needed, or None for the backend's default")
    if not -100 <= settings.priority <= 100:
        raise RequestError(f"priority is {settings.priority}: it goes from -100 to 100")
    for name in ("deadline_s", "step_timeout_s"):
        if (seconds := getattr(settings, name)) is not None and seconds <= 0:
            raise RequestError(f"{name} is {seconds}: it must be more than 0, or None")
    return settings if settings.output is None else Settings(**{**words, "output": Path(settings.output)})


def _wait(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine for a caller that has no event loop. Raises RequestError for one that has."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise RequestError("an event loop runs in this thread: await the method of the same name that ends in _async")
