"""Options of every TVM backend. Every name is a key of `JobSpec.options`."""

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from autosched import backend as backends
from autosched.errors import RequestError, misfit
from autosched.model import JobId, JobSpec
from autosched_tvm.compile.layouts.layout_option import LayoutOption
from autosched_tvm.tuning.early_stopping import HELP

AnyOptions = TypeVar("AnyOptions", bound="Options")


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How candidates are built and measured, and when a task has had enough of them."""

    batch: Annotated[int, Meta(ge=1, le=256)] = 8
    """Candidates per round of a task."""
    trials_per_task: Annotated[int, Meta(ge=1, le=100_000)] = 14
    """Default budget, times the number of tasks, when the job names no trials."""
    early_stopping: Annotated[int, Meta(ge=0, le=10_000_000, description=HELP)] = 0
    layout: LayoutOption = LayoutOption.KEEP
    """Memory layout of convolutions. auto: each is tuned in several, and the network gets the fastest assignment."""
    winograd: bool = False
    """Whether convolutions of 3x3, and those along one axis, in blocked layouts are also tuned with Winograd's
    algorithm, which multiplies less and rounds more. The faster way is taken."""
    integers: bool = True
    """Whether a quantised ONNX network computes with 8-bit numbers, where the CPU has an instruction for them, and not
    in float32 throughout."""
    fallback: str = ""
    """Another backend, for the tasks that this one cannot do. None: those stay as they are."""
    tolerance: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Allowed difference of outputs from the reference's, as a share of each output's largest value. None: what the
    computation can resolve, as measured."""
    repeat: Annotated[int, Meta(ge=1, le=100)] = 3
    """Samples per measurement."""
    min_repeat_ms: Annotated[float, Meta(ge=0, le=10_000)] = 20.0
    """A sample runs at least this long."""
    build_timeout_s: Annotated[float, Meta(gt=0, le=3_600)] = 10.0
    """Processor time per candidate."""
    run_timeout_s: Annotated[float, Meta(gt=0, le=3_600)] = 10.0
    """Per candidate."""
    recycle_after: Annotated[int, Meta(ge=1, le=1_000_000)] = 200
    """Candidates after which a worker process is replaced, since TVM's compiler leaks."""


def read(backend: str, kind: type[AnyOptions], given: Mapping[str, bool | int | float | str]) -> AnyOptions:
    """The options of a job. Raises RequestError for an unknown name or a value that does not fit."""
    known = kind.__struct_fields__
    for name in given:
        if name not in known:
            raise RequestError(f"backend {backend} has no option {name!r}; it has: {', '.join(known)}")
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        raise RequestError(f"backend {backend}, option {misfit(error)}") from error


def kind_of(backend: str) -> type[Options] | None:
    """Type of a backend's options; None for a backend without TVM. Raises NotFound for a backend that is gone."""
    kind = getattr(backends.load(backend), "options", None)
    return kind if isinstance(kind, type) and issubclass(kind, Options) else None


def options_of(number: JobId, job: JobSpec) -> Options:
    """Options of a job. Raises RequestError for another kind of backend, NotFound for one that is gone."""
    if (kind := kind_of(job.backend)) is None:
        raise RequestError(
            f"job {number} was tuned by backend {job.backend!r}, which has no schedules of TVM, so nothing can"
            " be learned from it here. Submit again without it"
        )
    return read(job.backend, kind, job.options)
