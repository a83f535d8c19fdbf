"""What was measured of all tasks of a job, for searches that look at other tasks than their own. Loads without TVM."""

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from autosched.model import TaskIndex


class Experience:
    """Of one job; its tasks tell and ask from several threads.

    It holds whole rounds only, those of earlier clients from the start: so it is a function of the records.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._median_s: defaultdict[TaskIndex, dict[bytes, float]] = defaultdict(dict)

    def tell(self, task: TaskIndex, measured: Iterable[tuple[bytes, Sequence[float]]]) -> None:
        """Candidates of a task and their latencies in seconds, empty for a failure; the last of a candidate counts."""
        worked = {candidate: median(latency_s) for candidate, latency_s in measured if latency_s}
        with self._lock:
            self._median_s[task].update(worked)

    def elsewhere(self, task: TaskIndex) -> list[dict[bytes, float]]:
        """What worked for each other task, with the median latency in seconds; in the order of the tasks."""
        with self._lock:
            return [dict(found) for other, found in sorted(self._median_s.items()) if other != task]
