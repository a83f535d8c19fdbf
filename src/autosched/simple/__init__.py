"""A backend in one class: list the choices, build one, measure it. This package does the rest.

    class MyBackend(SimpleBackend):
        def spaces(self, job): ...                        # the tasks of a model, and the knobs of each
        def build(self, job, space, choice, folder): ...  # write what is to be measured to the folder
        def measure(self, job, space, choice, folder): ... # run it: Run(latencies in seconds, outputs)

These three methods run in child processes pinned to the lease's cores: they may crash, hang, print and leak, and be
killed at any time. A crash is one failed candidate. They must depend on their arguments alone. A candidate is its
choice as JSON. A custom search, with or without a learned model, is a fourth method, `suggest`. A backend that needs
more (warm workers, tasks that share a model, another encoding) derives from the classes of `autosched.backend` itself.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import msgspec
from msgspec import Struct

from autosched.errors import RequestError, misfit
from autosched.model import Failure, JobSpec, code_name
from autosched.simple import search

if TYPE_CHECKING:
    from autosched.simple.session import SimpleSession

Value: TypeAlias = bool | int | float | str
Choice: TypeAlias = Mapping[str, Value]
Tried: TypeAlias = tuple[Choice, float | None]
"""A choice and its latency in seconds; None if it failed."""


class Space(Struct, frozen=True, kw_only=True):
    """One task: the choices to search."""

    name: str
    knobs: Mapping[str, tuple[Value, ...]]
    """The values of each knob."""
    default: Mapping[str, Value]
    """Choice without tuning; its values need not be among those of the knobs."""
    weight: int = 1
    """Number of calls in the whole."""
    flops: float = 0.0
    """Floating-point operations of one call; 0 if unknown."""
    shape: str = ""
    """Operator and shapes, for people."""


class Job(Struct, frozen=True, kw_only=True):
    """A tuning job."""

    name: str
    model: Path
    options: Struct
    target: str = "auto"
    cores: tuple[int, ...] = ()
    """Cores of the lease, on which this process runs."""


class Run(Struct, frozen=True):
    """Result of a measurement: latencies of one call, in seconds, and the computed values, for comparison."""

    latency_s: tuple[float, ...]
    output: tuple[float, ...] = ()


class NoOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """A backend without options."""


class CandidateFailed(Exception):
    """Raised by `build` or `measure`: the choice does not work, with a reason for the user."""

    def __init__(self, detail: str, failure: Failure | None = None) -> None:
        super().__init__(detail)
        self.failure = failure
        """None: a build error or a run error."""


class SimpleBackend:
    """Base class of simple backends: implement three methods, and name the class in the entry point."""

    api: tuple[int, int] = (2, 0)
    Options: ClassVar[type[Struct]] = NoOptions
    """Options of a job, with defaults: a msgspec.Struct with forbid_unknown_fields."""
    example: ClassVar[Path | None] = None
    """A small model, for `autosched plugin check` and `run`."""
    batch: ClassVar[int] = 8
    """Choices in a round."""
    trials_per_task: ClassVar[int] = 64
    """Default trials for each task."""
    tolerance: ClassVar[float] = 1e-6
    """Maximum difference to the default's outputs, relative to the larger of 1 and the value."""
    build_timeout_s: ClassVar[float] = 60.0
    run_timeout_s: ClassVar[float] = 10.0
    """Maximum seconds of one measurement."""

    # What the author writes -------------------------------------------------------------------------------------------

    def spaces(self, job: Job) -> Sequence[Space]:
        """The tasks of a model. Raises ModelRejected for an invalid one."""
        raise NotImplementedError(self._lacks("spaces"))

    def build(self, job: Job, space: Space, choice: Choice, folder: Path) -> None:
        """Write what `measure` needs to the folder. Raises CandidateFailed."""

    def code(self, job: Job, space: Space, choice: Choice, folder: Path) -> str:
        """Name of the code that `measure` runs for the choice, as made by `code_name`; called after `build`.

        Of several choices with equal names one is measured. If `measure` depends on the choice itself, and not only on
        the content of the folder, the choice must be part of the named content. Default: "", unknown.
        """
        return ""

    def measure(self, job: Job, space: Space, choice: Choice, folder: Path) -> Run:
        """Run what was built. Raises CandidateFailed."""
        raise NotImplementedError(self._lacks("measure"))

    def suggest(self, space: Space, seed: int, tried: Sequence[Tried], count: int) -> Sequence[Choice]:
        """Up to `count` choices without a measurement; none if nothing is left. Must depend on its arguments alone.

        Runs in the client's own process, limited by the step's time only. Default: half of them random, half next to
        the best three.
        """
        return search.suggest(space, seed, tried, count)

    def compiler(self, job: Job) -> str:
        """Compilers and their versions, "gcc 12.2.0": measurements with different ones are never compared."""
        return ""

    def publish(self, job: Job, best: Sequence[tuple[Space, Choice, Path]], outdir: Path) -> None:
        """Write the user's result to `outdir`, from the best choice of each task and its build folder."""
        choices = {space.name: dict(choice) for space, choice, _ in best}
        (outdir / f"{job.name}.json").write_text(json.dumps(choices, indent=1) + "\n")

    # What it gets -----------------------------------------------------------------------------------------------------

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> "SimpleSession":
        """Start one job. Raises RequestError for options that do not fit."""
        from autosched.simple.session import SimpleSession

        options = self.read(job.backend, job.options)
        own = Job(name=job.name, model=model, options=options, target=job.target)
        return SimpleSession(self, job, own, workdir, outdir)

    def read(self, backend: str, given: Mapping[str, Value]) -> Struct:
        """The options of a job. Raises RequestError that lists the known ones."""
        try:
            return msgspec.convert(dict(given), self.Options)
        except msgspec.ValidationError as error:
            there, said = self.Options.__struct_encode_fields__, misfit(error)
            if unknown := re.search(r"unknown field `(.*)`", said):
                said = f"there is none named {unknown[1]!r}{_meant(unknown[1], there)}"
            elif lacking := re.search(r"missing required field `(.*)`", said):
                said = f"{lacking[1]!r} must be given: --option {lacking[1]}=..."
            raise RequestError(
                f"options of backend {backend}: {said}. There are: {', '.join(there) or 'none'}"
            ) from None

    def _lacks(self, method: str) -> str:
        kind = type(self)
        return f"{kind.__name__} has no method {method}(){_meant(method, vars(kind))}"


def _meant(word: str, there: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, list(there), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


__all__ = [
    "CandidateFailed",
    "Choice",
    "Job",
    "NoOptions",
    "Run",
    "SimpleBackend",
    "Space",
    "Tried",
    "Value",
    "code_name",
]
