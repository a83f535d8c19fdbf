"""Measurements of all tasks of a job, and of warm-start jobs, for searches that use other tasks than their own. Loads
without TVM."""

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from statistics import median

from autosched.model import TaskIndex

HEARD_MAX = 4
"""Maximum number of the best candidates of earlier jobs that are tried. The best one is partly luck."""
Found = Iterable[tuple[bytes, Sequence[float]]]
"""Candidates and their latencies in seconds, empty for a failure. The last measurement of a candidate counts."""


class JobMeasurements:
    """Measurements of one job, which its tasks add and query from several threads.

    It holds whole rounds only, and those of earlier clients from the start, so that it is a function of the records.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._median_s: defaultdict[TaskIndex, dict[bytes, float]] = defaultdict(dict)
        self._earlier: list[tuple[str, dict[bytes, float]]] = []

    def tell(self, task: TaskIndex, measured: Found) -> None:
        """Adds measurements of a task."""
        with self._lock:
            self._median_s[task].update(_worked(measured))

    def tell_earlier(self, workload: str, measured: Found) -> None:
        """Adds measurements of an earlier job for a task with this workload."""
        with self._lock:
            self._earlier.append((workload, _worked(measured)))

    def elsewhere(self, task: TaskIndex) -> list[dict[bytes, float]]:
        """Returns the working candidates of each other task, with the median latency in seconds.

        In the order of the tasks, those of earlier jobs last.
        """
        with self._lock:
            others = [found for other, found in sorted(self._median_s.items()) if other != task]
            return [dict(found) for found in (*others, *(found for _, found in self._earlier))]

    def heard(self, workload: str) -> list[bytes]:
        """Returns the best candidates of earlier jobs for this very workload, the fastest first."""
        with self._lock:
            known = {c: s for other, found in self._earlier if other == workload for c, s in found.items()}
        return nsmallest(HEARD_MAX, known, key=lambda candidate: (known[candidate], candidate))


def _worked(measured: Found) -> dict[bytes, float]:
    return {candidate: median(latency_s) for candidate, latency_s in measured if latency_s}
