"""Decides when to compile and measure a network before its search is over. Pure.

The first build is made before any search. It may already be faster than the baseline. It also shows the latency of each
task without a search, and of everything that is not tuned: the search knows from its start where the time goes, and the
estimate is right. Further builds are made when the network is expected to be faster than the baseline, and then when it
has become clearly faster than the user's present module. A build must promise to be faster than the last one, and a
minimum number of rounds lies between two builds: this bounds their share of the search.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import structs

from autosched.backend import RIVALS, TUNED, Baseline, Evaluation, OperatorTimes, Timing
from autosched.model import StepId, TaskIndex, TaskInfo
from autosched.network_status import (
    BUILDS_MAX,
    Comparison,
    LatencyGoal,
    MeasuredBuild,
    NetworkMeasurements,
    NetworkStatus,
)

BY_RULE = "by rule"
"""Name of the schedule of a kernel without a search, among the times of operators."""
FIRST_BELOW = 1.5
"""Maximum ratio of the tasks' sum to the baseline for a build while the time outside the tasks is unknown."""
PROMISE = 0.97
"""Maximum ratio of the tasks' sums of two consecutive builds, until a module has been kept."""
DISTURBED_GROWTH = 2
"""Factor of the rounds between two builds for each disturbed build in a row, because a device may stay noisy."""
RECHECK_GROWTH = 4
"""Factor, for each build made, of the rounds before the next one if only the time outside the tasks speaks against the
network. That time comes from a build that may have been disturbed. The growth bounds the number of builds by the
logarithm of the search's length."""
BETTER = 0.9
"""Maximum ratio of the expected latency to that of the kept module."""
ROUNDS_BETWEEN = 4
"""Minimum rounds of the search between two builds."""
FAILURES_MAX = 2
"""Maximum builds that fail as a step; then no more are made before the end."""


@dataclass(frozen=True)
class BuildMeasurement:
    """A measured build of the whole network."""

    step: StepId
    """The evaluate step that measured it."""
    latency_s: float
    baseline: Timing | None = None
    """Latency of the baseline beside it; None if it was not measured again."""
    form: str = ""
    """The form of the model that the baseline ran; empty if it is the same as before."""
    disturbed: bool = False
    """Whether other load ran on the device meanwhile."""
    timing: Timing | None = None
    """The samples, with their confidence interval."""

    @classmethod
    def of(cls, step: StepId, evaluation: Evaluation, *, disturbed: bool) -> "BuildMeasurement | None":
        """The measurement of the tuned build in an evaluation; None if it was not measured."""
        timings = {timing.name: timing for timing in evaluation.timings}
        if (tuned := timings.get(TUNED)) is None or tuned.median_s <= 0.0:
            return None
        baseline = next((timing for name, timing in timings.items() if name in RIVALS), None)
        return cls(step, tuned.median_s, baseline, evaluation.form, disturbed, tuned)


@dataclass
class EarlyBuilds:
    """State of the builds during the search."""

    comparison: Comparison | None = None
    under_way: bool = False
    built_s: float | None = None
    """Sum over the tasks at the last build, in seconds."""
    rounds: int = 0
    """Rounds of the search that have ended since the last build began."""
    failures: int = 0
    builds: int = 0
    """Number of builds that were begun; all builds of earlier clients count as one."""
    disturbed: int = 0
    """Number of builds in a row whose measurement was disturbed."""
    measurements: NetworkMeasurements = field(default_factory=NetworkMeasurements)
    """Measured builds for the daemon, those of earlier clients included."""

    def resume(self, status: NetworkStatus) -> None:
        """Take over the measurements of the job's earlier clients."""
        self.comparison, self.measurements = status.comparison, status.measured

    def forget(self) -> None:
        """Forget the comparison of earlier clients, which does not hold on this device."""
        self.comparison = None

    def measured_baseline(self, baseline: Baseline | None) -> None:
        """Set the latency of the engine that the user would run otherwise; None if there is none."""
        if baseline is not None:
            self.comparison = Comparison(baseline)

    def wants(self, tasks_s: float | None, goal_s: float | None = None) -> bool:
        """Whether a build is worth its time now. `tasks_s`: sum over the tasks in seconds, None while one lacks a
        latency. `goal_s`: latency in seconds that ends the search; None if there is no goal."""
        known = self.comparison
        if known is None or self.under_way or self.failures >= FAILURES_MAX:
            return False
        if not self.builds:
            return True
        if tasks_s is None:
            return False
        if self.disturbed:
            if self.rounds < ROUNDS_BETWEEN * DISTURBED_GROWTH**self.disturbed:
                return False
        elif self.built_s is not None and (self.rounds < ROUNDS_BETWEEN or tasks_s > PROMISE * self.built_s):
            return False
        if goal_s is not None and known.whole_s(tasks_s) <= goal_s:
            return True
        if known.module_s is not None:
            return known.whole_s(tasks_s) <= BETTER * known.module_s
        if known.rest_s is None:
            return tasks_s <= FIRST_BELOW * known.baseline.median_s
        if tasks_s <= known.baseline.median_s and self.rounds >= ROUNDS_BETWEEN * RECHECK_GROWTH**self.builds:
            return True
        return known.whole_s(tasks_s) <= known.baseline.median_s

    def begin(self, tasks_s: float | None) -> None:
        """Note that a build begins. `tasks_s`: sum over the tasks in seconds, None while one lacks a latency."""
        self.builds += not self.under_way  # otherwise it waited for its lane
        self.under_way, self.built_s, self.rounds = True, tasks_s, 0

    def measured(
        self,
        build: BuildMeasurement,
        inside: tuple[float, float] | None = None,
        untuned_s: Mapping[TaskIndex, float] | None = None,
        *,
        kept: bool,
        after_s: float,
    ) -> None:
        """Note that an early build was measured. `kept`: whether the user got it, `after_s` seconds after the start of
        the job's client.

        `inside`: seconds in its tasks and in the whole, measured together in the build; used if there was no sum when
        it began. `untuned_s`: seconds of one call of tasks without a search, in the build.
        """
        assert self.comparison is not None
        if build.disturbed:
            self.disturbed += 1
        else:
            self.disturbed = 0
            tasks_s, whole_s = (self.built_s, build.latency_s) if self.built_s is not None else inside or (None, 0.0)
            self.built_s = tasks_s
            self._correct(tasks_s, whole_s, build)
            if untuned_s and not self.measurements.untuned_s:
                self.measurements = structs.replace(self.measurements, untuned_s=dict(untuned_s))
        self._add(build)
        if kept:
            known = self.comparison
            if build.baseline is not None:  # both sides of the user's ratio are of one run
                known = known.against(build.baseline, build.form)
            first_s = known.faster_after_s
            if first_s is None and build.latency_s < known.baseline.median_s:
                first_s = after_s
            self.comparison = structs.replace(known, module_s=build.latency_s, faster_after_s=first_s)
        self.under_way = False

    def told(self, goal: LatencyGoal) -> None:
        """Set how far the network is from its latency goal."""
        self.measurements = structs.replace(self.measurements, goal=goal)

    def ended(self, build: BuildMeasurement, tasks_s: float | None, result_s: float | None) -> None:
        """Note that the last build was measured. `tasks_s`: sum over the tasks in seconds. `result_s`: latency of the
        user's module if it was measured beside the baseline of `build`; None: the module kept before, if any."""
        if not build.disturbed:
            self._correct(tasks_s, build.latency_s, build)
        known = self.comparison
        if result_s is None:
            result_s = None if known is None else known.module_s
        elif known is not None and build.baseline is not None:
            self.comparison = known.against(build.baseline, build.form)
        self._add(build)
        self.measurements = structs.replace(self.measurements, result_s=result_s)

    def _correct(self, tasks_s: float | None, whole_s: float, build: BuildMeasurement) -> None:
        if (known := self.comparison) is None:
            return
        if tasks_s is not None:
            known = known.calibrated(tasks_s, whole_s)
        self.comparison = known if build.baseline is None else known.against(build.baseline, build.form)

    def _add(self, build: BuildMeasurement) -> None:
        known = self.comparison
        scale, rest_s = (1.0, None) if known is None else (known.scale, known.rest_s)
        measured = MeasuredBuild(build.step, build.latency_s, scale, rest_s, build.disturbed)
        builds = (*self.measurements.builds, measured)[-BUILDS_MAX:]
        self.measurements = structs.replace(self.measurements, builds=builds)

    def failed(self) -> None:
        """Note that a step of the build failed as a whole."""
        self.under_way = False
        self.failures += 1


def in_tasks_s(tasks: Iterable[TaskInfo], operators: OperatorTimes) -> float:
    """Seconds in the calls of tasks, with or without a search."""
    words = {task.shape for task in tasks}
    return sum(row.time_s for row in operators.rows if row.name in words)


def untuned(tasks: Iterable[TaskInfo], operators: OperatorTimes) -> dict[TaskIndex, float]:
    """Seconds of one call of each task without a search, from the times of operators in a build of the network.

    Operators are matched to tasks by their description; tasks with equal descriptions get the mean.
    """
    calls: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for row in operators.rows:
        if row.schedule == BY_RULE:
            calls[row.name] += row.calls
            seconds[row.name] += row.time_s
    return {task.task: seconds[task.shape] / calls[task.shape] for task in tasks if seconds[task.shape] > 0.0}
