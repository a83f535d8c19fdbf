"""Fake methods and searches. They need no TVM."""

import json
from collections.abc import Sequence

from autosched.model import TaskInfo
from autosched_tvm.tuning.search_method import Search, SearchContext, Unsupported


def site(name: str = "op", seed: int = 1) -> SearchContext:
    return SearchContext(TaskInfo(task=1, name=name, workload="0"), None, None, seed, 1)


def candidate(name: str, **remembered: object) -> bytes:
    said = [[name], [], remembered] if remembered else [[name], []]
    return json.dumps(said, separators=(",", ":")).encode()


class FakeSearch:
    """Returns numbered candidates until none is left; stores the measurements."""

    def __init__(self, name: str, left: int = 1_000, **remembered: object) -> None:
        self.name, self.left, self.number = name, left, 0
        self.remembered = remembered
        self.told: list[tuple[bytes, tuple[float, ...]]] = []

    def select(self, count: int) -> list[bytes]:
        count = min(count, self.left)
        self.left -= count
        self.number += count
        numbers = range(self.number - count, self.number)
        return [candidate(f"{self.name}{number}", **self.remembered) for number in numbers]

    def update(self, measured: Sequence[tuple[bytes, Sequence[float]]]) -> None:
        self.told += [(one, tuple(latency_s)) for one, latency_s in measured]


class FakeMethod:
    """Supports some tasks, by their names; None: all."""

    def __init__(self, search: FakeSearch, tasks: Sequence[str] | None = None, notes: Sequence[str] = ()) -> None:
        self.made, self.tasks, self.notes = search, tasks, notes

    def search(self, site: SearchContext) -> Search:
        if self.tasks is not None and site.info.name not in self.tasks:
            raise Unsupported(f"no template for {site.info.name}")
        return self.made
