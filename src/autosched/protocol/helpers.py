"""Methods between a client, the daemon and the client's helpers on other hosts."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from autosched.backend import Measured
from autosched.model import DeviceNote, Failure, Name, Seconds, Sha256, StepId, TaskInfo, Text
from autosched.protocol.method import BULK_BYTES, CHUNK_BYTES, FRAME_BYTES, Asker, Done, Method
from autosched.protocol.transfer import BlobState

MOVED_MAX = 1_000
"""Maximum candidates in one part of a step."""


class Work(StrEnum):
    """Work of a tuner that may run on another host."""

    BUILD = "build"
    PROFILE = "profile"
    COMPARE = "compare"


class MovedBuild(Struct, frozen=True):
    """A built candidate on its way between hosts."""

    candidate: Annotated[bytes, Meta(max_length=200_000)]
    file: Sha256 | None = None
    """Hash of its artifact; the bytes are in the moved files of the job."""
    name: Annotated[str, Meta(max_length=200)] = ""
    """Name of the artifact, whose suffix may matter."""
    failure: Failure | None = None
    detail: Text = ""
    build_s: Seconds = 0.0
    code: Annotated[str, Meta(max_length=64)] = ""
    folder: bool = False
    """Whether the artifact is a folder, sent as a tar file."""


class PartLease(Struct, frozen=True):
    """The units on which a helper runs a part of a step."""

    stage: Name
    units: Annotated[tuple[Name, ...], Meta(max_length=4)]
    cores: tuple[int, ...]
    """Numbered as on the helper's host."""
    timeout_s: float
    """Maximum seconds of the work itself; the helper ends what takes longer."""
    gpu: Annotated[str, Meta(max_length=40)] = ""
    """UUID of the device if it is a GPU."""


class PartResult(Struct, frozen=True):
    """Result of a part of a step that a helper ran."""

    builds: Annotated[tuple[MovedBuild, ...], Meta(max_length=MOVED_MAX)] = ()
    measured: Annotated[tuple[Measured, ...], Meta(max_length=MOVED_MAX)] = ()
    device: DeviceNote | None = None
    disturbed: Text = ""
    """The cause that disturbed the measurements, in words; empty if none is known."""
    worked_s: Seconds = 0.0
    """Seconds of the work itself on the helper."""
    error: Text = ""
    """Why the stage failed as a whole after these results; empty if it did not."""
    lost: Text = ""
    """Why the helper is lost. Nothing of the part is known, and the task is not at fault."""
    useless: bool = False
    """Whether the helper ended by itself without having done anything. One part of each such helper says so."""


class RunElsewhere(Method, frozen=True):
    """A client orders a part of a step from its helper on another host, through the daemon. Answered at once; PartEnded
    follows. A repeated order is not run again."""

    result = Done
    askers = (Asker.CLIENT, Asker.DAEMON)
    bytes_max = FRAME_BYTES
    step: StepId
    part: Annotated[int, Meta(ge=0)]
    """Number of the part in the step."""
    work: Work
    task: TaskInfo
    candidates: Annotated[tuple[Annotated[bytes, Meta(max_length=200_000)], ...], Meta(max_length=MOVED_MAX)] = ()
    """Candidates to build."""
    builds: Annotated[tuple[MovedBuild, ...], Meta(max_length=MOVED_MAX)] = ()
    """Builds to profile or compare."""
    sentinel: bool = False
    """Run the sentinel first, which measures the device's present speed."""
    lease: PartLease | None = None
    """Set by the daemon."""


class PartEnded(Method, frozen=True):
    """A helper has run a part of a step; the daemon passes this to the client."""

    result = Done
    askers = (Asker.CLIENT, Asker.DAEMON)
    bytes_max = FRAME_BYTES
    step: StepId
    part: Annotated[int, Meta(ge=0)]
    ended: PartResult


class StopElsewhere(Method, frozen=True):
    """Notification: a client wants the helper's work for a step killed."""

    result = Done
    askers = (Asker.CLIENT,)
    step: StepId
    reason: Text


class PutMoved(Method, frozen=True):
    """Upload a piece of a file that moves between the hosts of a job. Like PutBlob, but the file is removed with the
    client."""

    result = BlobState
    askers = (Asker.CLIENT,)
    bytes_max = BULK_BYTES
    sha256: Sha256
    total: Annotated[int, Meta(ge=0, le=64 * 1024**3)]
    offset: Annotated[int, Meta(ge=0)]
    data: Annotated[bytes, Meta(max_length=CHUNK_BYTES)]


class ForgetMoved(Method, frozen=True):
    """Notification: the client no longer needs these moved files."""

    result = Done
    askers = (Asker.CLIENT,)
    files: Annotated[tuple[Sha256, ...], Meta(max_length=MOVED_MAX)]
