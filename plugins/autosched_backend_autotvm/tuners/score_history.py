"""Scores of all measured configurations, which each tuner keeps."""

import math
from collections.abc import Sequence


class ScoreHistory:
    """Scores in the order in which configurations were first measured."""

    def __init__(self) -> None:
        self.scores: dict[int, float] = {}
        """Throughput in any unit, 0 for a failure."""

    def learn(self, indices: Sequence[int], scores: Sequence[float]) -> None:
        """Adds measurements; the latest of a configuration counts. A score that is no positive number is a failure."""
        for index, score in zip(indices, scores, strict=True):
            self.scores[index] = float(score) if math.isfinite(score) and score > 0 else 0.0

    @property
    def best(self) -> float:
        """Best score; 0 as long as everything failed."""
        return max(self.scores.values(), default=0.0)

    def ranked(self, count: int) -> list[int]:
        """Returns the best working configurations, best first; among equals the smaller number."""
        working = [index for index, score in self.scores.items() if score > 0]
        return sorted(working, key=lambda index: (-self.scores[index], index))[:count]
