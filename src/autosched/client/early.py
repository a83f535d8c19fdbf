"""When a network is worth compiling and measuring before its search is over. Pure.

The first build is made before anything was searched. It may be faster than what its user would run otherwise already,
and it says what each task takes without a search, and what is not tuned costs: so the search knows from its start where
the time goes, and the estimate is honest. The next ones are made when the network is expected to be faster than what
its user would run otherwise, and again when it has become clearly faster than the module that the user has. A build
must promise to be better than the last one, and rounds lie between two of them, so that builds cost a bounded share of
the search.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import structs

from autosched.backend import Baseline, Comparison, OperatorTimes
from autosched.model import TaskIndex, TaskInfo

BY_RULE = "by rule"
"""What a backend calls the schedule of a kernel that it did not search, among the times of operators."""
FIRST_BELOW = 1.5
"""Maximum ratio of the tasks' sum and the baseline for a build while what is not tuned is not known: a slower network
is far from passing it."""
PROMISE = 0.97
"""Maximum ratio of the tasks' sums of two builds in a row, until a module has been kept."""
BETTER = 0.9
"""Maximum ratio of the expected latency and that of the module that is kept."""
ROUNDS_BETWEEN = 4
"""Minimum rounds of the search between two builds."""
FAILURES_MAX = 2
"""Builds that failed as a step, after which no more are made before the end."""


@dataclass
class Early:
    """What is known of builds that were made during the search."""

    comparison: Comparison | None = None
    under_way: bool = False
    built_s: float | None = None
    """Sum over the tasks, of the last build."""
    rounds: int = 0
    """Rounds of the search that have ended since the last build began."""
    failures: int = 0
    builds: int = 0
    """Builds that were begun, those of earlier clients counted once."""

    def measured_baseline(self, baseline: Baseline | None) -> None:
        """What the user would run otherwise; None: there is nothing to compare with."""
        if baseline is not None:
            self.comparison = Comparison(baseline)

    def wants(self, tasks_s: float | None) -> bool:
        """Whether a build is worth its time now. `tasks_s`: sum over the tasks, None while one lacks a latency."""
        known = self.comparison
        if known is None or self.under_way or self.failures >= FAILURES_MAX:
            return False
        if not self.builds:
            return True
        if tasks_s is None:
            return False
        if self.built_s is not None and (self.rounds < ROUNDS_BETWEEN or tasks_s > PROMISE * self.built_s):
            return False
        if known.module_s is not None:
            return known.whole_s(tasks_s) <= BETTER * known.module_s
        if known.rest_s is None:
            return tasks_s <= FIRST_BELOW * known.baseline.median_s
        return known.whole_s(tasks_s) <= known.baseline.median_s

    def begin(self, tasks_s: float | None) -> None:
        """A build is being made. `tasks_s`: sum over the tasks, None while one lacks a latency."""
        self.builds += not self.under_way  # else it was waiting for its lane
        self.under_way, self.built_s, self.rounds = True, tasks_s, 0

    def measured(
        self, latency_s: float, inside: tuple[float, float] | None = None, *, kept: bool, after_s: float
    ) -> None:
        """The build takes so long. `kept`: it is with the user, `after_s` after the start of the job's client.

        `inside`: seconds in its tasks and in the whole, measured together in the build; they count where there was no
        sum when it began.
        """
        assert self.comparison is not None
        known = self.comparison
        if self.built_s is not None:
            known = known.calibrated(self.built_s, latency_s)
        elif inside is not None:
            self.built_s, whole_s = inside
            known = known.calibrated(self.built_s, whole_s)
        if kept:
            first_s = known.faster_after_s if known.faster_after_s is not None else after_s
            known = structs.replace(known, module_s=latency_s, faster_after_s=first_s)
        self.comparison, self.under_way = known, False

    def failed(self) -> None:
        """A step of the build failed as a whole."""
        self.under_way = False
        self.failures += 1


def in_tasks_s(tasks: Iterable[TaskInfo], operators: OperatorTimes) -> float:
    """Seconds in the calls of tasks, however they are scheduled."""
    words = {task.shape for task in tasks}
    return sum(row.time_s for row in operators.rows if row.name in words)


def untuned(tasks: Iterable[TaskInfo], operators: OperatorTimes) -> dict[TaskIndex, float]:
    """Seconds of one call of each task without a search, from the times of the operators in a build of the network.

    Operators have the words of the tasks that they are; tasks of the same words share their mean.
    """
    calls: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for row in operators.rows:
        if row.schedule == BY_RULE:
            calls[row.name] += row.calls
            seconds[row.name] += row.time_s
    return {task.task: seconds[task.shape] / calls[task.shape] for task in tasks if seconds[task.shape] > 0.0}
