"""Interface of the search method that a TVM backend adds to the common session. Loads without TVM."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from autosched.backend import NoteGroup
from autosched.model import TaskInfo
from autosched_tvm.tvm_types import IRModule, Target


@dataclass(frozen=True)
class SearchContext:
    """A task, as a search receives it."""

    info: TaskInfo
    workload: IRModule
    """IRModule with the one PrimFunc `main`."""
    target: Target
    """A tvm.target.Target."""
    seed: int
    threads: int
    """Number of cores that the search may use."""
    elsewhere: Callable[[], Sequence[Mapping[bytes, float]]] = tuple
    """Returns the candidates of each other task, of this job or a warm-start job, that worked so far, with their
    latencies in seconds."""
    tuned: bool = True
    """False for a task of an earlier job, whose search receives measurements and is never asked for candidates."""
    rankers: Mapping[str, bytes] = field(default_factory=dict)
    """Stored rankers of the device model, by operator family."""


class Unsupported(Exception):
    """This method cannot search for candidates of this task; the message gives the reason as a clause."""


class Search(Protocol):
    """Search of one task: a fold over the measurements.

    A candidate is the JSON of a schedule's trace, `[instructions, decisions]`, with an optional third element, an
    object that the search stores with the record. Only the records survive the client.
    """

    def select(self, count: int) -> list[bytes]:
        """Returns up to `count` candidates that were not measured before; none where the space is exhausted.

        The answer depends on the seed and the measurements only: a repeated call returns the same.
        """

    def update(self, measured: Sequence[tuple[bytes, Sequence[float]]]) -> None:
        """Learns from candidates and their latencies in seconds, empty for a failure.

        They may include candidates of other methods, and candidates that do not fit the task; these are no errors.
        """


class SearchMethod(Protocol):
    """The searches of one job, and the state that its tasks share. Searches are used from several threads."""

    @property
    def notes(self) -> Sequence[str | NoteGroup]:
        """Returns notes on the search, which the user sees beside the result."""

    def search(self, site: SearchContext) -> Search:
        """Begins the search for a task. Raises Unsupported."""


@runtime_checkable
class RanksSchedules(Protocol):
    """A method that can name promising schedules of a task before anything is measured."""

    def ranked(self, site: SearchContext, count: int) -> list[bytes]:
        """Returns up to `count` candidates that a ranker, or other knowledge of the method, expects to be the fastest,
        the best first; none without any. Raises Unsupported."""


@runtime_checkable
class ChecksNetwork(Protocol):
    """A method with options that may fit no task of a network."""

    def check_network(self, workloads: Iterable[Any], target: Target) -> None:
        """Raises RequestError for options that no task can use. `workloads`: an IRModule for each task, created lazily;
        `target`: a tvm.target.Target."""
