"""The boundary to a backend: values from plugin code are validated before other code uses them.

An invalid value for one candidate becomes that candidate's failure; an invalid result of a stage becomes a StepFailed
that says what was expected. No backend can therefore create a record that the daemon refuses.
"""

import os
import re
import tempfile
import traceback
from collections.abc import Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from autosched.backend import Backend, Baseline, Built, Evaluation, Measured, Network, Session, Tuner
from autosched.errors import Hindered, RequestError, StepFailed
from autosched.model import CODE_DIGEST_PATTERN, DeviceNote, Failure, JobSpec, Program

CANDIDATE_BYTES_MAX = 200_000
BUILD_BYTES = 1 << 20
"""Number of bytes that must fit on the disk for a build to be written."""
LATENCY_S_MAX = 1e6
SAMPLES_MAX = 1_000
DETAIL_CHARS_MAX = 4_000
OURS, LIBRARY = os.path.dirname(os.path.dirname(__file__)) + "/", os.path.dirname(os.__file__) + "/"
"""Folders of code that is not the backend's."""

T = TypeVar("T", bound=Struct)


def opened(backend: Backend, spec: JobSpec, model: Path, workdir: Path, device_cores: int) -> Session:
    """Open a session with its files in `workdir`, and the user's in its folder `out`. Raises RequestError if the
    backend answers with another object, and what its `open` raises."""
    outdir = workdir / "out"
    outdir.mkdir(parents=True, exist_ok=True)
    found: object = backend.open(spec, model, workdir, outdir, device_cores)
    if not isinstance(found, Session):
        raise RequestError(
            f"the backend's open() answered with a {type(found).__name__}; it must be a subclass of"
            " autosched.backend.Session"
        )
    return found


def tuner(found: object) -> Tuner:
    """The search of a task. Raises RequestError for another object."""
    if not isinstance(found, Tuner):
        raise RequestError(
            f"the session's tuner() answered with a {type(found).__name__}; it must be a subclass of"
            " autosched.backend.Tuner"
        )
    return found


def network(found: object) -> Network:
    """Validate a network, whose tasks must be numbered from 1. Raises RequestError."""
    try:
        checked = _checked(found, Network)
    except ValueError as error:
        raise RequestError(f"the backend's network cannot be used: {error}") from None
    if sorted(info.task for info in checked.tasks) != list(range(1, len(checked.tasks) + 1)):
        numbers = ", ".join(str(info.task) for info in checked.tasks[:20])
        raise RequestError(f"the backend numbers its tasks {numbers}; they must count from 1 without a gap")
    if checked.batch < 1 or checked.default_trials < 0:
        raise RequestError(
            f"the backend's network has batch {checked.batch} and default_trials {checked.default_trials};"
            " at least 1 and 0 are needed"
        )
    for info in checked.tasks:
        if sum(info.groups.values()) > info.weight:
            raise RequestError(
                f"the backend lets its task {info.task} compete for {sum(info.groups.values())} calls, but its weight,"
                f" which is all its calls, is {info.weight}"
            )
    return checked


def candidates(found: object, count: int) -> list[bytes]:
    """At most `count` candidates from an answer of `select`. Raises StepFailed."""
    if not isinstance(found, Sequence) or isinstance(found, str | bytes):
        raise StepFailed(f"select answered with a {type(found).__name__}; a sequence of candidates is needed")
    chosen = list(found)[:count]
    for one in chosen:
        if not isinstance(one, bytes):
            raise StepFailed(f"select gave a {type(one).__name__} as a candidate; candidates are bytes")
        if len(one) > CANDIDATE_BYTES_MAX:
            raise StepFailed(f"select gave a candidate of {len(one)} bytes; at most {CANDIDATE_BYTES_MAX} are allowed")
    return chosen


def built(found: object, wanted: Sequence[bytes]) -> list[Built]:
    """Validate an answer of `build`: one result for each candidate, in their order. Raises StepFailed."""
    answers = list(found) if isinstance(found, Sequence) else []
    if not all(isinstance(one, Built) for one in answers) or [one.candidate for one in answers] != list(wanted):
        raise StepFailed(f"build must answer with one Built for each of the {len(wanted)} candidates, in their order")
    for one in answers:
        if not isinstance(one.code, str) or not re.fullmatch(CODE_DIGEST_PATTERN, one.code):
            raise StepFailed(
                f"build gave {str(one.code)[:80]!r} as the name of a candidate's code; at most 64 of the digits"
                " 0123456789abcdef are needed, as autosched.model.code_name(content) gives them"
            )
    return answers


def check_space(folder: Path, builds: Sequence[Built]) -> None:
    """Raises Hindered if builds failed and files cannot be written into their folder: no candidate is at fault."""
    if all(one.failure is None for one in builds):
        return
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, BUILD_BYTES)
    except OSError as error:
        raise Hindered(
            f"builds cannot be written into {folder} ({error.strerror}); free space on its disk, or check its rights"
        ) from None


def each(found: object) -> Iterable[object]:
    """Iterate over the results of `profile`. Raises StepFailed."""
    if not isinstance(found, Iterable):
        raise StepFailed(
            f"profile answered with a {type(found).__name__}; it must yield one Measured for each candidate"
        )
    return found


def measured(one: object, wanted: list[bytes]) -> Measured:
    """Validate a measurement; its candidate is removed from `wanted`. Raises StepFailed."""
    if not isinstance(one, Measured) or one.candidate not in wanted:
        what = f"{one.candidate[:40]!r}" if isinstance(one, Measured) else f"a {type(one).__name__}"
        raise StepFailed(f"profile must yield one Measured for each candidate that was built, not {what}")
    wanted.remove(one.candidate)
    try:
        return _with_numbers(one)
    except (TypeError, ValueError) as error:
        return Measured(one.candidate, (), Failure.RUN_ERROR, f"the backend measured nonsense: {error}")


def unsaid(candidate: bytes) -> Measured:
    """The failure of a candidate for which `profile` returned nothing."""
    return Measured(candidate, (), Failure.RUN_ERROR, "the backend's profile stage said nothing of this candidate")


def _with_numbers(one: Measured) -> Measured:
    failure = None if one.failure is None else Failure(one.failure)
    latency_s = () if failure is not None else tuple(float(seconds) for seconds in one.latency_s)[:SAMPLES_MAX]
    for seconds in latency_s:
        if not 0 < seconds <= LATENCY_S_MAX:
            raise ValueError(f"a latency of {seconds} s")
    if failure is None and not latency_s:
        raise ValueError("neither a latency nor a failure")
    return Measured(
        one.candidate,
        latency_s,
        failure,
        str(one.detail)[:DETAIL_CHARS_MAX],
        _span_s(one.build_s),
        _span_s(one.profile_s),
    )


def _span_s(seconds: float) -> float:
    return min(float(seconds), 1e9) if isfinite(seconds) and seconds >= 0 else 0.0


def evaluation(found: object) -> Evaluation:
    """Validate an evaluation. Raises StepFailed."""
    try:
        checked = _checked(found, Evaluation)
    except ValueError as error:
        raise StepFailed(f"the backend's evaluation cannot be used: {error}") from None
    for timing in checked.timings:
        numbers = (*timing.samples_s, timing.median_s, timing.low_s, timing.high_s)
        if not all(isfinite(seconds) and seconds > 0 for seconds in numbers):
            raise StepFailed(f"the backend's evaluation of the build {timing.name!r} has latencies of {numbers[:9]} s")
    return checked


def baseline(found: object) -> Baseline | None:
    """Validate a baseline. Raises StepFailed."""
    try:
        return None if found is None else _checked(found, Baseline)
    except ValueError as error:
        raise StepFailed(f"the backend's baseline cannot be used: {error}") from None


def sentinel(found: object) -> DeviceNote:
    """Validate the result of a board's sentinel. Raises StepFailed."""
    try:
        checked = _checked(found, DeviceNote)
    except ValueError as error:
        raise StepFailed(f"what the backend's sentinel found cannot be used: {error}") from None
    if checked.foreign_s is not None and checked.watched_s <= 0:
        raise StepFailed("the backend's sentinel saw other programs, but watched for no time (watched_s is 0)")
    return checked


def program(found: object) -> Program | None:
    """Validate the program of a workload. Raises StepFailed."""
    try:
        return None if found is None else _checked(found, Program)
    except ValueError as error:
        raise StepFailed(f"the backend's program of a workload cannot be used: {error}") from None


def _checked(found: object, kind: type[T]) -> T:
    """Check each field against its type. Raises ValueError."""
    if not isinstance(found, kind):
        raise ValueError(f"it is a {type(found).__name__}, not a {kind.__name__}")
    try:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=kind)
    except (msgspec.MsgspecError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def raised_at(error: BaseException) -> traceback.FrameSummary | None:
    """The last line of a traceback outside autosched and Python's own library; None if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame for frame in reversed(frames) if is_foreign(frame.filename)), None)


def is_foreign(file: str) -> bool:
    """Whether a file belongs neither to autosched nor to Python. Packages may lie below Python's library."""
    if file.startswith(("<", OURS)):
        return False
    return not file.startswith(LIBRARY) or "-packages/" in file
