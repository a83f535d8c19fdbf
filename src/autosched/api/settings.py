"""Settings of a job besides the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from autosched.errors import RequestError
from autosched.model import DEFAULT_BACKEND, EARLIER_MAX

Option = bool | int | float | str
"""Type of a backend's option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings with their defaults."""

    trials: int | None = None
    """Number of candidates to measure; None: the backend's default; 0: none, use known schedules only."""
    target: str = "auto"
    device: str = "cpu"
    cores: int | None = None
    """Number of cores to tune for; None: those of the device, by default half of the machine's."""
    backend: str = DEFAULT_BACKEND
    seed: int = 0
    options: Mapping[str, Option] = field(default_factory=dict)
    """Options of the backend."""
    output: str | Path | None = None
    """Folder for results."""
    priority: int = 0
    """-100 to 100; higher goes first."""
    deadline_s: float | None = None
    """Deadline in seconds after the submission."""
    step_timeout_s: float | None = None
    """Time limit of each step in seconds."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels for finding jobs."""
    fresh: bool = False
    """Ignore the record store."""
    target_ms: float | None = None
    """Latency goal of the network in milliseconds, with which the search ends. The best known schedules are measured
    first."""
    improve_by: float | None = None
    """The search ends when the latency is this share, such as 0.2, below that of the best known schedules."""
    until_faster: bool = False
    """End the search as soon as a module is correct and faster than ONNX Runtime."""
    learn_from: Sequence[int] = ()
    """Numbers of ended jobs, of any models, that warm-start the search."""
    inputs: str | Path | None = None
    """A .npz file with samples of inputs, for checking the result; None: random inputs."""
    tolerance: float | None = None
    """Maximum difference of outputs, as a share of each output's largest value; None: the effect of rounding."""
    unverified: bool = False
    """Whether a module is handed over whose outputs no other engine could check."""

    def __post_init__(self) -> None:
        """Raise RequestError for an invalid latency goal, and for two goals."""
        if self.target_ms is not None and not 0 < self.target_ms <= 1e9:
            raise RequestError(f"target_ms is {self.target_ms}: it is a latency in milliseconds, more than 0")
        if self.improve_by is not None and not 0 < self.improve_by < 1:
            raise RequestError(f"improve_by is {self.improve_by}: it is a share, more than 0 and less than 1")
        if sum((self.target_ms is not None, self.improve_by is not None, self.until_faster)) > 1:
            raise RequestError("a search ends with one of target_ms, improve_by and until_faster: choose one of them")


class Words(TypedDict, total=False):
    """The settings as keywords, for type checkers and editors."""

    trials: int | None
    target: str
    device: str
    cores: int | None
    backend: str
    seed: int
    options: Mapping[str, Option]
    output: str | Path | None
    priority: int
    deadline_s: float | None
    step_timeout_s: float | None
    labels: Mapping[str, str]
    fresh: bool
    target_ms: float | None
    improve_by: float | None
    until_faster: bool
    learn_from: Sequence[int]
    inputs: str | Path | None
    tolerance: float | None
    unverified: bool


def chosen(words: Mapping[str, Any]) -> Settings:
    """Settings from keywords. Raises RequestError for an unknown keyword or a value out of range."""
    if unknown := ", ".join(sorted(words.keys() - Words.__annotations__.keys())):
        raise RequestError(f"there is no setting {unknown}; there are: {', '.join(Words.__annotations__)}")
    settings = Settings(**words)
    if settings.trials is not None and settings.trials < 0:
        raise RequestError(
            f"trials is {settings.trials}: 0 delivers what is known, more search; None is the backend's default"
        )
    if settings.cores is not None and settings.cores < 1:
        raise RequestError(f"cores is {settings.cores}: at least 1 is needed, or None for those of the device")
    if not -100 <= settings.priority <= 100:
        raise RequestError(f"priority is {settings.priority}: it goes from -100 to 100")
    if not isinstance(settings.learn_from, Sequence) or not all(isinstance(job, int) for job in settings.learn_from):
        raise RequestError(f"learn_from is {settings.learn_from!r}: it takes a list of jobs' numbers")
    if len(settings.learn_from) > EARLIER_MAX:
        raise RequestError(f"learn_from names {len(settings.learn_from)} jobs: at most {EARLIER_MAX} can teach one")
    if settings.tolerance is not None and not 0 < settings.tolerance <= 1:
        raise RequestError(f"tolerance is {settings.tolerance}: it is a share, above 0 and at most 1, or None")
    for name in ("deadline_s", "step_timeout_s"):
        if (seconds := getattr(settings, name)) is not None and seconds <= 0:
            raise RequestError(f"{name} is {seconds}: it must be more than 0, or None")
    return settings
