"""The search method that a TVM backend adds to the common session. Loads without TVM."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from autosched.backend import NoteGroup
from autosched.model import TaskInfo


@dataclass(frozen=True)
class SearchContext:
    """One task, as a search sees it."""

    info: TaskInfo
    workload: Any
    """IRModule with the one PrimFunc `main`."""
    target: Any
    """tvm.target.Target."""
    seed: int
    threads: int
    """Cores that the search may use."""
    elsewhere: Callable[[], Sequence[Mapping[bytes, float]]] = tuple
    """For each other task, of the job or of one that it learns from, the candidates that worked by now and their
    latencies in seconds."""
    tuned: bool = True
    """False: a task of an earlier job. Its search is told what was measured there, and never asked."""


class Unsupported(Exception):
    """This method cannot search for candidates of this task; the message says why, in a clause."""


class Search(Protocol):
    """The search of one task: a fold over what was measured.

    A candidate is the JSON of a schedule's trace, `[instructions, decisions]`, with a third element, an object, where
    the search wants to remember something with the record. Nothing but the records survives the client.
    """

    def select(self, count: int) -> list[bytes]:
        """Up to `count` candidates that were not measured before; none: there is nothing left.

        The answer depends on the seed and on what was measured alone: asked again, it is the same.
        """

    def update(self, measured: Sequence[tuple[bytes, Sequence[float]]]) -> None:
        """Learn from candidates and their latencies in seconds, empty for a failure.

        Candidates of other methods may be among them, and some that do not fit the task; they are no error.
        """


class SearchMethod(Protocol):
    """The searches of one job: holds what its tasks share. Its searches are used from several threads."""

    @property
    def notes(self) -> Sequence[str | NoteGroup]:
        """Notes for the user about the search, beside the result."""

    def search(self, site: SearchContext) -> Search:
        """Begin the search for a task. Raises Unsupported."""


@runtime_checkable
class ChecksNetwork(Protocol):
    """A method with options that may fit no task of a network."""

    def check_network(self, workloads: Iterable[Any], target: Any) -> None:
        """Raise RequestError for options that no task can use. `workloads`: an IRModule for each task, made when it is
        asked for; `target`: a tvm.target.Target.
        """
