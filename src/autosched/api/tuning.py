"""Models, jobs and tuned models: each step returns the only type that has the next one."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack

import msgspec

from autosched import file_names
from autosched.api import result_folder
from autosched.api.compiled_module import Module, TemporaryFolder
from autosched.api.connection import Daemon
from autosched.api.fluent import Ordered, wait
from autosched.api.on_demand import connected, kind_of_cores
from autosched.api.settings import Settings, Words, chosen
from autosched.api.whole_models import whole
from autosched.backend import Evaluation
from autosched.errors import RequestError
from autosched.model import DEFAULT_BACKEND, Goal, JobId, JobSpec, Record
from autosched.protocol import Forecast, JobView, PolicyView
from autosched.report import EvaluationSummary, verdict
from autosched.wire import blob_transfer

Watch = Callable[[JobView], None]
"""Called with the job whenever it has changed."""


def load_model(path: str | Path, shapes: Mapping[str, Sequence[int]] | None = None) -> "Model":
    """Select a model's file and the shapes of its dynamic inputs. Raises RequestError if the file cannot be read.

    Only the file's existence is checked; the job's first step finds out whether it can be tuned. The backends on TVM
    read ONNX and TFLite files and PyTorch programs; other backends define their own models.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            kind = "a folder" if path.is_dir() else "a pipe or a device"
            raise RequestError(f"{path} is {kind}, not the file of a model. Name the file of your network, MODEL.onnx")
        with path.open("rb") as file:
            first = file.read(1)
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read: {error.strerror}. Name the file of your network, MODEL.onnx"
        ) from None
    if not first:
        raise RequestError(f"{path} is empty, so it is no model. Export or fetch it again")
    checked = {name: tuple(int(extent) for extent in shape) for name, shape in (shapes or {}).items()}
    for name, shape in checked.items():
        if any(extent < 1 for extent in shape):
            raise RequestError(f"the shape of input {name!r} is {shape}: every extent must be 1 or more")
    return Model(path.absolute(), checked)


def best(
    model: "str | Path | Model",
    device: str = "cpu",
    *,
    backend: str = DEFAULT_BACKEND,
    daemon: str | None = None,
) -> "TunedModel":
    """The best known module of a network without a search: each task gets the best schedule that any job measured.

    device: kind of device of the daemon. Unknown tasks get the schedule by rule. Schedules that were measured in
    another environment are compared once more. Raises as `Model.tune`.
    """
    wanted = model if isinstance(model, Model) else load_model(model)
    return wanted.tune(daemon=daemon, trials=0, device=device, backend=backend)


def policy(name: str | None = None, *, goal: Goal | str | None = None, daemon: str | None = None) -> PolicyView:
    """Return the scheduling policy of a daemon. With a name or a goal, set it until the daemon restarts."""
    return wait(policy_async(name, goal=goal, daemon=daemon))


async def policy_async(
    name: str | None = None, *, goal: Goal | str | None = None, daemon: str | None = None
) -> PolicyView:
    """Like `policy`, for coroutines."""
    if goal is not None and goal not in list(Goal):
        raise RequestError(f"no goal is named {goal!r}; there are: {', '.join(Goal)}")
    async with connected(daemon, start=False) as connection:
        if name is None and goal is None:
            return await connection.policy()
        return await connection.choose_policy(name, Goal(goal) if goal is not None else None)


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
        """The file's name without its suffix, and without characters that file names should not have."""
        return file_names.made_from(os.path.splitext(self.path.name)[0])

    @property
    def file(self) -> str:
        """The name with its suffix, from which a backend may tell the kind of the model."""
        return file_names.made_from_file(self.path.name)

    def spec(self, settings: Settings, sha256: str, inputs: str | None = None) -> JobSpec:
        """The job that tunes it. `sha256`: content hash of the model's file; `inputs`: that of the samples' file."""
        checks: dict[str, bool | float] = {"unverified": True} if settings.unverified else {}
        if settings.tolerance is not None:
            checks["tolerance"] = settings.tolerance
        return JobSpec(
            name=self.name, file=self.file, model=sha256, shapes=dict(self.shapes), target=settings.target,
            device=settings.device, backend=settings.backend, trials=settings.trials, seed=settings.seed,
            options={**settings.options, **checks}, inputs=inputs,
            output=str(settings.output or ""), priority=settings.priority,
            deadline_s=settings.deadline_s, step_timeout_s=settings.step_timeout_s, labels=dict(settings.labels),
            latency_goal_s=None if settings.target_ms is None else settings.target_ms / 1e3,
            improve_by=settings.improve_by, until_faster=settings.until_faster, fresh=settings.fresh,
            learn_from=tuple(settings.learn_from),
        )  # fmt: skip

    def tune(self, *, daemon: str | None = None, watch: Watch | None = None, **settings: Unpack[Words]) -> "TunedModel":
        """Tune, and wait for the end. Keywords as in `Settings`. Raises JobFailed, JobCancelled, DaemonUnreachable."""
        return wait(self.tune_async(daemon=daemon, watch=watch, **settings))

    async def tune_async(
        self, *, daemon: str | None = None, watch: Watch | None = None, **settings: Unpack[Words]
    ) -> "TunedModel":
        """Like `tune`, for coroutines."""
        job = await self.submit_async(daemon=daemon, **settings)
        return await job.wait_async(watch=watch)

    def submit(self, *, daemon: str | None = None, **settings: Unpack[Words]) -> "Job":
        """Submit a job, and return as soon as it is accepted."""
        return wait(self.submit_async(daemon=daemon, **settings))

    async def submit_async(self, *, daemon: str | None = None, **settings: Unpack[Words]) -> "Job":
        """Like `submit`, for coroutines."""
        wanted = chosen(settings)
        output = result_folder.prepare(Path(wanted.output)) if wanted.output is not None else None
        async with connected(daemon, cores=wanted.cores) as connection:
            if wanted.cores is not None:
                wanted = replace(wanted, device=kind_of_cores(await connection.units(), wanted.device, wanted.cores))
            return Job(await submit(connection, self, wanted), daemon, output)


@dataclass(frozen=True)
class Job(Ordered):
    """A job that a daemon has accepted. It goes on independently of this object."""

    id: JobId
    daemon: str | None = None
    output: Path | None = None

    _instead = dict.fromkeys(("compile", "run", "evaluate", "save"), "wait for it first, job.wait() gives a TunedModel")

    def wait(self, *, watch: Watch | None = None) -> "TunedModel":
        """Wait for the end. Raises JobFailed or JobCancelled."""
        return wait(self.wait_async(watch=watch))

    async def wait_async(self, *, watch: Watch | None = None) -> "TunedModel":
        """Like `wait`, for coroutines."""
        async with connected(self.daemon) as connection:
            async for view in connection.follow(self.id):
                if watch is not None:
                    watch(view)
            result_folder.check_ended(view)
            holder, folder = self._place()
            return TunedModel(await result_folder.collect(connection, view, folder), holder)

    def fetch(self) -> "TunedModel":
        """The present results: a module that is already faster than ONNX Runtime, while the search goes on.

        Raises RequestError while there is none.
        """
        return wait(self.fetch_async())

    async def fetch_async(self) -> "TunedModel":
        """Like `fetch`, for coroutines."""
        async with connected(self.daemon) as connection:
            holder, folder = self._place()
            return TunedModel(await result_folder.fetch(connection, await connection.job(self.id), folder), holder)

    def _place(self) -> tuple[TemporaryFolder | None, Path]:
        """The folder for results, and the object that removes it if it is temporary."""
        if self.output is not None:
            return None, self.output
        holder = TemporaryFolder()
        return holder, holder.path

    def view(self) -> JobView:
        """The present state of the job."""
        return wait(self.view_async())

    async def view_async(self) -> JobView:
        """Like `view`, for coroutines."""
        async with connected(self.daemon) as connection:
            return await connection.job(self.id)

    def cancel(self) -> None:
        """Cancel the job; its records are kept."""
        wait(self.cancel_async())

    async def cancel_async(self) -> None:
        """Like `cancel`, for coroutines."""
        async with connected(self.daemon) as connection:
            await connection.cancel(self.id)


@dataclass(frozen=True)
class TunedModel(Ordered):
    """A network whose tasks are tuned."""

    result: result_folder.Result
    holder: TemporaryFolder | None = field(default=None, repr=False, compare=False)  # kept while this object lives

    _instead = dict.fromkeys(("run", "evaluate", "save"), "compile it first, tuned.compile() gives a Module")

    @property
    def job(self) -> JobView:
        """The job at its end: tasks, trials, failures."""
        return self.result.report.job

    @property
    def evaluation(self) -> Evaluation | None:
        """Latencies of tuned build, untuned build and ONNX Runtime, and whether the outputs are equal."""
        return self.result.report.evaluation

    @property
    def verdict(self) -> EvaluationSummary | None:
        """Comparison with the baseline: ONNX Runtime with the form of the model that suits it best."""
        return None if self.evaluation is None else verdict(self.evaluation)

    @property
    def records(self) -> list[Record]:
        """All trials, in the order in which they were measured."""
        lines = (self.result.folder / result_folder.RECORDS).read_bytes().splitlines()
        return [msgspec.json.decode(line, type=result_folder.SavedRecord) for line in lines]

    def compile(self) -> "Module":
        """The network compiled with the best schedules. Raises RequestError if the backend compiles nothing."""
        if (path := self.result.module) is None:
            raise RequestError(f"the backend {self.job.backend!r} makes no module; tune with backend 'ansor'")
        return Module(path, holder=self.holder)

    async def compile_async(self) -> "Module":
        """Like `compile`, for coroutines."""
        return self.compile()


# Shared with the command line -----------------------------------------------------------------------------------------


async def submit(
    daemon: Daemon,
    model: Model,
    settings: Settings,
    progress: blob_transfer.Progress | None = None,
    *,
    expected: Callable[[Forecast], None] | None = None,
) -> JobId:
    """Upload a model and submit the job. `expected` is called with the forecast."""
    async with whole(model.path) as path:
        sha256 = await daemon.upload(path, progress)
    accepted = await daemon.submit(model.spec(settings, sha256, await upload_inputs(daemon, settings.inputs)))
    if expected is not None and accepted.forecast is not None:
        expected(accepted.forecast)
    return accepted.job


async def upload_inputs(daemon: Daemon, path: str | Path | None) -> str | None:
    """Upload samples of inputs; returns their content hash. Raises RequestError for an unreadable file."""
    if path is None:
        return None
    try:
        return await daemon.upload(Path(path))
    except OSError as error:
        raise RequestError(f"the inputs {path} cannot be read: {error.strerror}. Write them with numpy.savez") from None
