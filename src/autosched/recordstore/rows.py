"""Types of rows that are written to the store, and of those that are read."""

from enum import IntEnum

from msgspec import Struct

from autosched.model import Purpose, Record
from autosched.records.record_selection import FINALS
from autosched.records.statistics import interval
from autosched.recordstore.keys import ID_DIGITS, Environment, candidate_digest


class Origin(Struct, frozen=True):
    """Origin of measurements: a daemon's database, or an import."""

    name: str
    """Unique: the number of a daemon's database, or the digest of an imported file."""
    imported: bool = False
    detail: str = ""
    """In words: the daemon's host, or the name of the imported file."""


class Workload(Struct, frozen=True):
    """One operator with its shapes and types."""

    hash: str
    """Structural hash."""
    name: str = ""
    shape: str = ""
    """Description: "conv2d 64x56x56 -> 64, 3x3"."""
    flops: float = 0.0
    """Floating-point operations of one call."""

    @property
    def identifier(self) -> str:
        """First characters of its hash, which identify it for people."""
        return self.hash[:ID_DIGITS]


class SourceJob(Struct, frozen=True):
    """The job in which something was measured."""

    number: int
    """Unique within its origin."""
    name: str = ""
    network: str = ""
    """Name of the model's file."""
    model: str = ""
    """Content hash of the model's file."""
    owner: str = ""
    """The user who submitted it."""


class Measurement(Struct, frozen=True):
    """One record to be written to the store."""

    id: bytes
    job: SourceJob
    workload: Workload
    environment: Environment
    record: Record


class Cursor(Struct, frozen=True):
    """Progress of copying a daemon's database to the store."""

    record: int = 0
    """Number of the last record."""
    record_crc: int = 0
    """Checksum of that record, which shows whether the database is still the same."""
    tag: int = 0
    """Number of the last tag."""


class Tag(Struct, frozen=True):
    """A disturbance of a measurement by other load, found later."""

    job: int
    number: int
    reason: str


class Standing(IntEnum):
    """How much a measurement says about its schedule; the one that says most represents it."""

    UNKNOWN = 0  # disturbed, and without a latency
    BOUND = 1  # disturbed: the latency is an upper bound
    SEARCHED = 2  # undisturbed, not compared with others
    COMPARED = 3  # undisturbed, in turns with the other good ones of its task
    WRONG = 4  # wrong result in a whole network


def judge(record: Record) -> tuple[Standing, float | None]:
    """The standing of a record, and the latency in seconds that it gives, if any.

    The rules are those of `records.record_selection`.
    """
    if record.purpose is Purpose.NETWORK:
        return Standing.WRONG, None
    if record.disturbed:
        return (Standing.BOUND if record.latency_s else Standing.UNKNOWN), record.best_s
    return (Standing.COMPARED if record.purpose in FINALS else Standing.SEARCHED), record.best_s


class Schedule(Struct, frozen=True):
    """A known schedule, with its representative measurement."""

    workload: str
    """Structural hash."""
    environment: Environment
    candidate: bytes
    """In its backend's own encoding."""
    best_s: float | None
    """Median of the samples in seconds; the fastest of a disturbed measurement. None for a failure."""
    standing: Standing
    samples_s: tuple[float, ...]
    failure: str
    """Why there is no latency; empty if there is one."""
    code: str
    """Digest of the object code, in hexadecimal digits; empty if unknown."""
    measured_at: float
    """Unix time in seconds; 0 if unknown."""
    job: SourceJob
    origin: Origin

    @property
    def identifier(self) -> str:
        """First hexadecimal digits of its digest, which identify it for people."""
        return candidate_digest(self.candidate).hex()[:ID_DIGITS]

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Bounds of the 95 % confidence interval of the median; None for a failure."""
        return interval(self.samples_s) if self.samples_s else None


class KnownWorkload(Struct, frozen=True):
    """Summary of a workload in one environment."""

    workload: Workload
    environment: Environment
    tried: int
    """Number of measured schedules, failures included."""
    failed: int
    measured_at: float
    """Unix time in seconds of the latest measurement; 0 if unknown."""
    best: Schedule | None
    """The fastest schedule; None if all failed."""


class Pruned(Struct, frozen=True):
    """Counts of what was deleted from a store."""

    schedules: int
    measurements: int


class Holding(Struct, frozen=True):
    """Counts of a store's content for one backend, device and compiler."""

    backend: str
    device: str
    compiler: str
    schedules: int
    workloads: int


class Stats(Struct, frozen=True):
    """Counts of a store's content."""

    measurements: int
    schedules: int
    workloads: int
    jobs: int
    origins: int
    """Number of databases of daemons, and of imported files."""
    imported: int
    """Number of imported measurements."""
    holdings: tuple[Holding, ...]
    """By backend, device and compiler, the largest first."""


RANKER_GROWTH = 1.2
"""Growth of the number of schedules after which a ranker is trained again."""


class StoredRanker(Struct, frozen=True):
    """A model that orders the schedules of one operator family on one device model."""

    family: str
    """Operators that it ranks: the name of a schedule template."""
    device: str
    version: str
    """Version of the schedules and their features; a ranker of another one is not used."""
    schedules: int
    """Number of schedules that it learned from."""
    trained_at: float
    """Unix time in seconds."""
    quality: dict[str, float]
    """Figures of its quality, by name."""
    content: bytes = b""
    """The model; empty in a list."""


class Neighbour(Struct, frozen=True):
    """A workload of the same operator as another one."""

    workload: Workload
    distance: float
    """See `shapes.ShapeIndex`."""
