"""A search method with a second one for the tasks that the first cannot tune."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from autosched.backend import NoteGroup
from autosched_tvm.tuning.search_method import (
    ChecksNetwork,
    RanksSchedules,
    Search,
    SearchContext,
    SearchMethod,
    Unsupported,
)
from autosched_tvm.tvm_types import Target


class Fallback:
    """Reports in its notes which tasks went to the second method, and why."""

    def __init__(self, first: SearchMethod, name: str, other: Callable[[], SearchMethod]) -> None:
        """`name`: name of the second backend, whose method is made when it is needed."""
        self._first, self._name, self._make_other = first, name, other
        self._other: SearchMethod | None = None
        self._passed_on: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def notes(self) -> Sequence[str | NoteGroup]:
        """Returns the notes of both methods, and the tasks that were passed on, by reason."""
        with self._lock:
            tasks: defaultdict[str, list[str]] = defaultdict(list)
            for task, reason in self._passed_on.items():
                tasks[reason].append(task)
            said = [
                NoteGroup(f"tuned by backend {self._name}, since {reason}", tuple(names))
                for reason, names in tasks.items()
            ]
            return (*said, *self._first.notes, *(self._other.notes if self._other is not None else ()))

    def check_network(self, workloads: Iterable[Any], target: Target) -> None:
        """Raises RequestError for options of the first method that no task can use."""
        if isinstance(self._first, ChecksNetwork):
            self._first.check_network(workloads, target)

    def ranked(self, site: SearchContext, count: int) -> list[bytes]:
        """Returns the candidates that the first method expects to be the fastest. Raises Unsupported."""
        return self._first.ranked(site, count) if isinstance(self._first, RanksSchedules) else []

    def search(self, site: SearchContext) -> Search:
        """Begins the search for a task. Raises Unsupported when neither method can tune it."""
        try:
            return self._first.search(site)
        except Unsupported as error:
            with self._lock:
                if site.tuned:
                    self._passed_on[site.info.name] = str(error)
                if self._other is None:
                    self._other = self._make_other()
            return self._other.search(site)
