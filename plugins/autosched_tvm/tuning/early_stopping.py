"""Early stopping: ends a task after enough trials without progress. Loads without TVM.

Fewer trials are enough where many came near the best: this is a plateau reached from several sides, and no luck.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from statistics import median

PROGRESS = 0.0
"""Minimum gain that counts as progress, as a share. Small steps that add up to more count, too."""
NEAR, SEVERAL, HASTE = 0.02, 4, 3
"""Where SEVERAL trials, the best included, differ by at most the share NEAR, the patience is divided by HASTE."""
HELP = (
    "Trials in a row without progress after which a task ends; 0: never. Progress is a latency that is lower"
    + (f" by more than {PROGRESS:.1%}" if PROGRESS else "")
    + f". Where {SEVERAL} trials came within {NEAR:.0%} of the best, 1/{HASTE} of that number is enough."
    " 32 saves a third of 64 trials and costs about 1 % of speed."
)
"""Help text of the option `early_stopping`."""


class EarlyStopping:
    """Counts trials since the last progress; a fold over the measurements."""

    def __init__(
        self, patience: int, progress: float = PROGRESS, near: float = NEAR, several: int = SEVERAL, haste: int = HASTE
    ) -> None:
        """`patience`: number of trials without progress; 0: never end."""
        self._patience, self._short = patience, max(1, patience // haste)
        self._progress, self._near, self._several = progress, near, several
        self._seen: set[bytes] = set()
        self._mark_s: float | None = None
        """Latency of the last progress."""
        self._since = 0
        self._sorted_s: list[float] = []
        """Latencies of all trials, sorted, in seconds."""

    @property
    def over(self) -> bool:
        """Whether the task is finished. A task without a valid trial is not; its client gives it up."""
        if not self._patience or self._mark_s is None:
            return False
        near = bisect_right(self._sorted_s, (1 + self._near) * self._sorted_s[0])
        return self._since >= (self._patience if near < self._several else self._short)

    def update(self, measured: Sequence[tuple[bytes, Sequence[float]]]) -> None:
        """Adds candidates and their latencies in seconds, empty for a failure. A repeated measurement is no second
        trial."""
        for candidate, latency_s in measured:
            new = candidate not in self._seen
            self._seen.add(candidate)
            now_s = median(latency_s) if latency_s else None
            if new and now_s is not None:
                insort(self._sorted_s, now_s)
            if now_s is not None and (self._mark_s is None or now_s < (1 - self._progress) * self._mark_s):
                self._mark_s, self._since = now_s, 0
            elif new:
                self._since += 1
