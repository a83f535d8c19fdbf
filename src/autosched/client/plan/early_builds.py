"""When a network is worth compiling and measuring before its search is over. Pure.

The first build is made before anything was searched. It may be faster than what its user would run otherwise already,
and it says what each task takes without a search, and what is not tuned costs: so the search knows from its start where
the time goes, and the estimate is honest. The next ones are made when the network is expected to be faster than what
its user would run otherwise, and again when it has become clearly faster than the module that the user has. A build
must promise to be better than the last one, and rounds lie between two of them, so that builds cost a bounded share of
the search.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import structs

from autosched.backend import (
    BUILDS_MAX,
    RIVALS,
    TUNED,
    Baseline,
    Comparison,
    Evaluation,
    LatencyGoal,
    MeasuredBuild,
    Network,
    NetworkMeasurements,
    OperatorTimes,
    Timing,
)
from autosched.model import StepId, TaskIndex, TaskInfo

BY_RULE = "by rule"
"""Name of the schedule of a kernel that was not searched, among the times of operators."""
FIRST_BELOW = 1.5
"""Maximum ratio of the tasks' sum and the baseline for a build while what is not tuned is not known: a slower network
is far from passing it."""
PROMISE = 0.97
"""Maximum ratio of the tasks' sums of two builds in a row, until a module has been kept."""
DISTURBED_GROWTH = 2
"""Factor of the rounds between two builds for each disturbed build in a row: a device may never come to rest."""
RECHECK_GROWTH = 4
"""Factor, for each build made, of the rounds before the next one where only the time outside of the tasks speaks
against the network. That time was measured in a build, maybe while something slowed it down; the growth bounds the
number of builds by the logarithm of the search's length."""
BETTER = 0.9
"""Maximum ratio of the expected latency and that of the module that is kept."""
ROUNDS_BETWEEN = 4
"""Minimum rounds of the search between two builds."""
FAILURES_MAX = 2
"""Builds that failed as a step, after which no more are made before the end."""


@dataclass(frozen=True)
class BuildMeasurement:
    """A build of the whole network that was just measured."""

    step: StepId
    """The evaluate step that measured it."""
    latency_s: float
    baseline: Timing | None = None
    """Latency of the baseline beside it; None where it was not measured again."""
    form: str = ""
    """The form of the model that the baseline ran; empty: the same as before."""
    disturbed: bool = False
    """Other load ran on the device meanwhile."""
    timing: Timing | None = None
    """The samples, with their confidence interval."""

    @classmethod
    def of(cls, step: StepId, evaluation: Evaluation, *, disturbed: bool) -> "BuildMeasurement | None":
        """The measurement of the tuned build in an evaluation; None where it was not measured."""
        timings = {timing.name: timing for timing in evaluation.timings}
        if (tuned := timings.get(TUNED)) is None or tuned.median_s <= 0.0:
            return None
        baseline = next((timing for name, timing in timings.items() if name in RIVALS), None)
        return cls(step, tuned.median_s, baseline, evaluation.form, disturbed, tuned)


@dataclass
class EarlyBuilds:
    """State of the builds that are made during the search."""

    comparison: Comparison | None = None
    under_way: bool = False
    built_s: float | None = None
    """Sum over the tasks, of the last build."""
    rounds: int = 0
    """Rounds of the search that have ended since the last build began."""
    failures: int = 0
    builds: int = 0
    """Builds that were begun, those of earlier clients counted once."""
    disturbed: int = 0
    """Builds in a row whose measurement was disturbed."""
    measurements: NetworkMeasurements = field(default_factory=NetworkMeasurements)
    """Measured builds for the daemon, those of earlier clients included."""

    def resume(self, network: Network | None) -> None:
        """Take over what earlier clients of the job measured."""
        if network is not None:
            self.comparison, self.measurements = network.comparison, network.measured

    def forget(self) -> None:
        """Forget the comparison of earlier clients, which does not hold here."""
        self.comparison = None

    def measured_baseline(self, baseline: Baseline | None) -> None:
        """Take the latency of the engine that the user would run otherwise; None: there is nothing to compare with."""
        if baseline is not None:
            self.comparison = Comparison(baseline)

    def wants(self, tasks_s: float | None, goal_s: float | None = None) -> bool:
        """Whether a build is worth its time now. `tasks_s`: sum over the tasks, None while one lacks a latency.
        `goal_s`: latency that ends the search; None: there is none.
        """
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
        """A build is being made. `tasks_s`: sum over the tasks, None while one lacks a latency."""
        self.builds += not self.under_way  # else it was waiting for its lane
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
        """An early build was measured. `kept`: it is with the user, `after_s` after the start of the job's client.

        `inside`: seconds in its tasks and in the whole, measured together in the build; they count where there was no
        sum when it began. `untuned_s`: seconds of one call of tasks without a search, in the build.
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
            first_s = known.faster_after_s
            if first_s is None and build.latency_s < known.baseline.median_s:
                first_s = after_s
            self.comparison = structs.replace(known, module_s=build.latency_s, faster_after_s=first_s)
        self.under_way = False

    def told(self, goal: LatencyGoal) -> None:
        """How far the network is from the latency that its user asked for."""
        self.measurements = structs.replace(self.measurements, goal=goal)

    def ended(self, build: BuildMeasurement, tasks_s: float | None, result_s: float | None) -> None:
        """The last build was measured. `tasks_s`: sum over the tasks. `result_s`: latency of the module that the user
        gets if it was measured beside the baseline of `build`; None: the module that was kept before, if there is one.
        """
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
