"""A method, and another one for the tasks that it cannot do."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from autosched.backend import NoteGroup
from autosched_tvm.tuning.search_method import ChecksNetwork, Search, SearchContext, SearchMethod, Unsupported


class Fallback:
    """Says in its notes which tasks went to the other one, and why."""

    def __init__(self, first: SearchMethod, name: str, other: Callable[[], SearchMethod]) -> None:
        """`name` is that of the other backend, whose method is made when it is needed."""
        self._first, self._name, self._make_other = first, name, other
        self._other: SearchMethod | None = None
        self._passed_on: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def notes(self) -> Sequence[str | NoteGroup]:
        """The notes of both, and for each reason the tasks that were passed on."""
        with self._lock:
            tasks: defaultdict[str, list[str]] = defaultdict(list)
            for task, reason in self._passed_on.items():
                tasks[reason].append(task)
            said = [
                NoteGroup(f"tuned by backend {self._name}, since {reason}", tuple(names))
                for reason, names in tasks.items()
            ]
            return (*said, *self._first.notes, *(self._other.notes if self._other is not None else ()))

    def check_network(self, workloads: Iterable[Any], target: Any) -> None:
        """Raise RequestError for options of the first method that no task can use."""
        if isinstance(self._first, ChecksNetwork):
            self._first.check_network(workloads, target)

    def search(self, site: SearchContext) -> Search:
        """Begin the search for a task. Raises Unsupported when neither can do it."""
        try:
            return self._first.search(site)
        except Unsupported as error:
            with self._lock:
                if site.tuned:
                    self._passed_on[site.info.name] = str(error)
                if self._other is None:
                    self._other = self._make_other()
            return self._other.search(site)
