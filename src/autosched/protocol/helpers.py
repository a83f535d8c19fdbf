"""Methods between a client, the daemon and the client's helpers on other hosts. Since protocol 1.9."""

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
    """Work of a tuner that may be done elsewhere."""

    BUILD = "build"
    PROFILE = "profile"
    COMPARE = "compare"


class MovedBuild(Struct, frozen=True):
    """A candidate after the build stage, on its way between hosts."""

    candidate: Annotated[bytes, Meta(max_length=200_000)]
    file: Sha256 | None = None
    """Content of its artifact; the bytes lie among the moved files of the job."""
    name: Annotated[str, Meta(max_length=200)] = ""
    """Name of the artifact: its ending may matter."""
    failure: Failure | None = None
    detail: Text = ""
    build_s: Seconds = 0.0
    code: Annotated[str, Meta(max_length=64)] = ""
    folder: bool = False
    """Whether the artifact is a folder: then the bytes are a tar file of it."""


class PartLease(Struct, frozen=True):
    """The units on which a helper runs a part of a step."""

    stage: Name
    units: Annotated[tuple[Name, ...], Meta(max_length=4)]
    cores: tuple[int, ...]
    """As they are numbered on the helper's host."""
    timeout_s: float
    """Maximum seconds of the work itself; the helper ends what takes longer."""


class PartResult(Struct, frozen=True):
    """Result of a part of a step that a helper ran."""

    builds: Annotated[tuple[MovedBuild, ...], Meta(max_length=MOVED_MAX)] = ()
    measured: Annotated[tuple[Measured, ...], Meta(max_length=MOVED_MAX)] = ()
    device: DeviceNote | None = None
    disturbed: Text = ""
    """The cause that disturbed the measurements, in words; empty: none is known."""
    worked_s: Seconds = 0.0
    """How long the work itself took there."""
    error: Text = ""
    """Why the stage failed as a whole after that; empty: it did not."""
    lost: Text = ""
    """Why the helper is gone. Nothing of the part is known, and that is no fault of the task."""
    useless: bool = False
    """Whether it ended by itself before it had done anything. Of each such helper one part says so."""


class RunElsewhere(Method, frozen=True):
    """A client lets its helper on another host run a part of a step; the daemon sends it on. It is answered at once,
    and PartEnded follows. Asked again, it is not run again."""

    result = Done
    askers = (Asker.CLIENT, Asker.DAEMON)
    bytes_max = FRAME_BYTES
    step: StepId
    part: Annotated[int, Meta(ge=0)]
    """Counts the parts of the step."""
    work: Work
    task: TaskInfo
    candidates: Annotated[tuple[Annotated[bytes, Meta(max_length=200_000)], ...], Meta(max_length=MOVED_MAX)] = ()
    """To build."""
    builds: Annotated[tuple[MovedBuild, ...], Meta(max_length=MOVED_MAX)] = ()
    """To profile or compare."""
    sentinel: bool = False
    """Run the fixed work first that tells how fast the device is at present."""
    lease: PartLease | None = None
    """Set by the daemon."""


class PartEnded(Method, frozen=True):
    """A helper has run a part of a step; the daemon sends it on to the client."""

    result = Done
    askers = (Asker.CLIENT, Asker.DAEMON)
    bytes_max = FRAME_BYTES
    step: StepId
    part: Annotated[int, Meta(ge=0)]
    ended: PartResult


class StopElsewhere(Method, frozen=True):
    """Notification: a client wants what its helper runs for the step killed."""

    result = Done
    askers = (Asker.CLIENT,)
    step: StepId
    reason: Text


class PutMoved(Method, frozen=True):
    """Upload a piece of a file that moves between the hosts of a job; as PutBlob, but the file goes with the client."""

    result = BlobState
    askers = (Asker.CLIENT,)
    bytes_max = BULK_BYTES
    sha256: Sha256
    total: Annotated[int, Meta(ge=0, le=64 * 1024**3)]
    offset: Annotated[int, Meta(ge=0)]
    data: Annotated[bytes, Meta(max_length=CHUNK_BYTES)]


class ForgetMoved(Method, frozen=True):
    """Notification: the client needs these moved files no more."""

    result = Done
    askers = (Asker.CLIENT,)
    files: Annotated[tuple[Sha256, ...], Meta(max_length=MOVED_MAX)]
