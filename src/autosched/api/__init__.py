"""The Python API: a model is loaded, tuned, compiled; what comes out is a module that runs.

    model = autosched.load_model("net.onnx", shapes={"x": (1, 3, 48, 320)})
    tuned = model.tune(trials=400)
    module = tuned.compile().save("net-tuned")
    module.run(x)

Each step returns the only type that has the next one. Every method that waits has an `_async` twin. Work is done by
a daemon: the one at ``daemon="tcp://host:port"`` or AUTOSCHED_HOST, else this user's own, which is started when none
runs.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from autosched import results
from autosched.api.chain import Ordered, wait
from autosched.api.module import Inputs, Module, TemporaryFolder, load_module
from autosched.backend import Evaluation
from autosched.errors import RequestError
from autosched.model import DEFAULT_BACKEND, Goal, JobId, JobSpec, Record
from autosched.protocol import JobView, PolicyView
from autosched.remote import Daemon, connected
from autosched.wire import blobs

__all__ = [
    "Inputs", "Job", "Model", "Module", "Option", "Settings", "TunedModel", "Watch", "load_model", "load_module",
    "policy", "policy_async", "submit",
]  # fmt: skip

Option = bool | int | float | str
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


def policy(name: str | None = None, *, goal: Goal | str | None = None, daemon: str | None = None) -> PolicyView:
    """Who goes next in a daemon. With a name or a goal, let that decide until the daemon starts again."""
    return wait(policy_async(name, goal=goal, daemon=daemon))


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


@dataclass(frozen=True)
class Model(Ordered):
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
        return wait(self.tune_async(daemon=daemon, watch=watch, **settings))

    async def tune_async(
        self, *, daemon: str | None = None, watch: Watch | None = None, **settings: Any
    ) -> "TunedModel":
        """The same for coroutines."""
        job = await self.submit_async(daemon=daemon, **settings)
        return await job.wait_async(watch=watch)

    def submit(self, *, daemon: str | None = None, **settings: Any) -> "Job":
        """Start tuning; returns as soon as the job is accepted."""
        return wait(self.submit_async(daemon=daemon, **settings))

    async def submit_async(self, *, daemon: str | None = None, **settings: Any) -> "Job":
        """The same for coroutines."""
        wanted = _settings(settings)
        if wanted.output is not None:
            results.prepare(wanted.output)
        async with connected(daemon) as connection:
            return Job(await submit(connection, self, wanted), daemon, wanted.output)


@dataclass(frozen=True)
class Job(Ordered):
    """A job that a daemon has accepted. It goes on whether or not this object lives."""

    id: JobId
    daemon: str | None = None
    output: Path | None = None

    _instead = dict.fromkeys(("compile", "run", "evaluate", "save"), "wait for it first, job.wait() gives a TunedModel")

    def wait(self, *, watch: Watch | None = None) -> "TunedModel":
        """Wait for the end. Raises JobFailed or JobCancelled."""
        return wait(self.wait_async(watch=watch))

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
                holder = TemporaryFolder()
                folder = holder.path
            return TunedModel(await results.collect(connection, view, folder), holder)

    def view(self) -> JobView:
        """Where the job stands."""
        return wait(self.view_async())

    async def view_async(self) -> JobView:
        """The same for coroutines."""
        async with connected(self.daemon) as connection:
            return await connection.job(self.id)

    def cancel(self) -> None:
        """Stop it; its records are kept."""
        wait(self.cancel_async())

    async def cancel_async(self) -> None:
        """The same for coroutines."""
        async with connected(self.daemon) as connection:
            await connection.cancel(self.id)


@dataclass(frozen=True)
class TunedModel(Ordered):
    """A network whose tasks are tuned."""

    result: results.Result
    holder: TemporaryFolder | None = field(default=None, repr=False, compare=False)  # kept while this object lives

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


# Shared with the command line -----------------------------------------------------------------------------------------


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
