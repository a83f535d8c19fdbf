"""Options that all TVM backends share. Each name is a key of `JobSpec.options`."""

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
    """Options of building and measuring candidates, and of ending a task."""

    batch: Annotated[int, Meta(ge=1, le=256)] = 8
    """Number of candidates per round of a task."""
    trials_per_task: Annotated[int, Meta(ge=1, le=100_000)] = 14
    """Default number of trials per task, when the job names no number."""
    early_stopping: Annotated[int, Meta(ge=0, le=10_000_000, description=HELP)] = 0
    layout: LayoutOption = LayoutOption.KEEP
    """Memory layout of convolutions. auto: each is tuned in several, and the network gets the fastest assignment."""
    winograd: bool = False
    """Whether convolutions of 3x3, and those along one axis, in blocked layouts are also tuned with Winograd's
    algorithm, which multiplies less and rounds more. The faster way is taken."""
    integers: bool = True
    """Whether a quantised ONNX network computes with 8-bit integers, where the CPU has an instruction for them, instead
    of float32."""
    fallback: str = ""
    """Backend for tasks that this one cannot tune; empty: they stay untuned."""
    tolerance: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Maximum difference of outputs from the reference's, as a share of each output's largest value. None: the measured
    resolution of the computation."""
    unverified: bool = False
    """Whether a network is handed over whose outputs no other engine could check."""
    repeat: Annotated[int, Meta(ge=1, le=100)] = 3
    """Number of samples per measurement."""
    min_repeat_ms: Annotated[float, Meta(ge=0, le=10_000)] = 20.0
    """Minimum duration of a sample in milliseconds."""
    build_timeout_s: Annotated[float, Meta(gt=0, le=3_600)] = 10.0
    """Maximum CPU time for building a candidate, in seconds."""
    run_timeout_s: Annotated[float, Meta(gt=0, le=3_600)] = 10.0
    """Maximum time for running a candidate, in seconds."""
    recycle_after: Annotated[int, Meta(ge=1, le=1_000_000)] = 200
    """Number of candidates after which a worker process is replaced, since TVM's compiler leaks memory."""


def read(backend: str, kind: type[AnyOptions], given: Mapping[str, bool | int | float | str]) -> AnyOptions:
    """Returns the options of a job. Raises RequestError for an unknown name or a value that does not fit."""
    known = kind.__struct_fields__
    for name in given:
        if name not in known:
            raise RequestError(f"backend {backend} has no option {name!r}; it has: {', '.join(known)}")
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        raise RequestError(f"backend {backend}, option {misfit(error)}") from error


def kind_of(backend: str) -> type[Options] | None:
    """Returns the type of a backend's options; None for a backend without TVM. Raises NotFound for a backend that is
    gone."""
    kind = getattr(backends.load(backend), "options", None)
    return kind if isinstance(kind, type) and issubclass(kind, Options) else None


def options_of(number: JobId, job: JobSpec) -> Options:
    """Returns the options of a job. Raises RequestError for another kind of backend, NotFound for one that is gone."""
    if (kind := kind_of(job.backend)) is None:
        raise RequestError(
            f"job {number} was tuned by backend {job.backend!r}, which has no schedules of TVM, so nothing can"
            " be learned from it here. Submit again without it"
        )
    return read(job.backend, kind, job.options)
