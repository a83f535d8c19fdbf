"""Tasks that compete: the same convolution in several layouts, of which the network will use one. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

TRIALS_MIN = 8
"""So many trials everyone gets."""
PATIENCE = 8.0
"""After n trials a task is given up when a rival needs less than 1 / (1 + PATIENCE / n) of its time."""


class Rivals:
    """What is known of a job's competing tasks. `groups`: for each convolution, the tasks that can do it."""

    def __init__(self, groups: Iterable[Sequence[int]] = ()) -> None:
        self._of: defaultdict[int, list[set[int]]] = defaultdict(list)
        for group in groups:
            for task in group:
                self._of[task].append(set(group) - {task})
        self._best_s: dict[int, float] = {}
        self._trials: defaultdict[int, int] = defaultdict(int)

    def measured(self, task: int, latency_s: float | None) -> None:
        """A trial of the task has ended; None: it failed."""
        self._trials[task] += 1
        if latency_s is not None:
            self._best_s[task] = min(latency_s, self._best_s.get(task, latency_s))

    def lost(self, task: int) -> bool:
        """Whether each convolution that the task could do will most likely be done by another one."""
        trials = self._trials[task]
        if task not in self._of or trials < TRIALS_MIN or task not in self._best_s:
            return False
        enough_s = self._best_s[task] / (1 + PATIENCE / trials)
        return all(
            any(other in self._best_s and self._best_s[other] < enough_s for other in group) for group in self._of[task]
        )
