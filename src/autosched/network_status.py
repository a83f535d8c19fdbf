"""State of a network that changes while its job runs: measurements of the whole network, and known schedules.

A client sets it and reports each change; the daemon keeps it, shows it, and gives it to the job's next client.
"""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, structs

from autosched.backend import Baseline, Timing
from autosched.model import EARLIER_MAX, TASKS_MAX, JobId, Name, PositiveSeconds, Seconds, StepId, TaskIndex, Text


class Comparison(Struct, frozen=True, forbid_unknown_fields=True):
    """Comparison of a network with its baseline during tuning, as far as known."""

    baseline: Baseline
    scale: Annotated[float, Meta(gt=0, le=1)] = 1.0
    rest_s: Seconds | None = None
    """Latency outside the tasks: that of a build minus the sum of its tasks; None if no build was measured yet."""
    module_s: PositiveSeconds | None = None
    """Latency of the module that is kept for the user while the search goes on. It is correct, and faster than the
    baseline or, with a latency goal, the best so far."""
    faster_after_s: Seconds | None = None
    """Seconds from the start of the job's first client to the first such module."""

    def whole_s(self, tasks_s: float) -> float:
        """Expected latency of the network from the sum over its tasks."""
        return self.scale * tasks_s + (self.rest_s or 0.0)

    def calibrated(self, tasks_s: float, measured_s: float) -> "Comparison":
        """The comparison after a build was measured whose tasks sum up to `tasks_s`.

        A build that is faster than its sum scales the sum: kernels that are measured alone find colder caches.
        """
        if measured_s < tasks_s:
            return structs.replace(self, scale=measured_s / tasks_s, rest_s=0.0)
        return structs.replace(self, scale=1.0, rest_s=measured_s - tasks_s)

    def against(self, timing: Timing, form: str) -> "Comparison":
        """The comparison with a newer measurement of the baseline. `form`: the form of the model that it ran."""
        baseline = structs.replace(
            self.baseline, form=form or self.baseline.form, median_s=timing.median_s, low_s=timing.low_s,
            high_s=timing.high_s,
        )  # fmt: skip
        return structs.replace(self, baseline=baseline)


BUILDS_MAX = 1_000
"""Maximum measured builds of one network that a client reports."""


class MeasuredBuild(Struct, frozen=True, forbid_unknown_fields=True):
    """A build of the whole network with the best schedules so far, measured on the device."""

    step: StepId
    """The evaluate step that measured it."""
    latency_s: PositiveSeconds
    scale: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """`Comparison.scale` from this build on."""
    rest_s: Seconds | None = None
    """`Comparison.rest_s` from this build on."""
    disturbed: bool = False
    """Whether other load ran on the device meanwhile."""


class GoalReached(StrEnum):
    """Whether a measured network meets the latency goal of its user."""

    MET = "met"
    MISSED = "missed"
    UNCLEAR = "unclear"  # the goal is within the noise of the measurement


class LatencyGoal(Struct, frozen=True, forbid_unknown_fields=True):
    """The latency goal of a job's user, and the module that is nearest to it."""

    goal_s: PositiveSeconds
    latency_s: PositiveSeconds
    """Median latency of the user's module."""
    low_s: PositiveSeconds
    high_s: PositiveSeconds
    """Bounds of its 95 % confidence interval."""
    reached: GoalReached
    ended: Text = ""
    """Why the search ended, in words; empty while it goes on."""


class NetworkMeasurements(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Measurements of the whole network during its search and at its end."""

    builds: Annotated[tuple[MeasuredBuild, ...], Meta(max_length=BUILDS_MAX)] = ()
    """In the order of measurement."""
    untuned_s: dict[TaskIndex, PositiveSeconds] = {}
    """Latency of one call of each task without a search, in the first undisturbed build; some tasks may be missing."""
    result_s: PositiveSeconds | None = None
    """Latency of the user's module, as measured at the job's end; None before that, and without a module."""
    goal: LatencyGoal | None = None
    """None without a latency goal, or before a build was measured."""


def expected_s(
    tasks_s: float | None, comparison: Comparison | None = None, result_s: float | None = None
) -> float | None:
    """Latency of a whole network: measured at the end, otherwise expected from the sum over its tasks; None if
    unknown."""
    if result_s is not None:
        return result_s
    return tasks_s if tasks_s is None or comparison is None else comparison.whole_s(tasks_s)


def standing_s(
    tasks_s: float | None, comparison: Comparison | None = None, result_s: float | None = None
) -> float | None:
    """Present latency of a network: measured at the end, otherwise the lesser of the expected latency and that of the
    user's module; None if unknown."""
    whole_s = expected_s(tasks_s, comparison, result_s)
    module_s = None if comparison is None or result_s is not None else comparison.module_s
    return min((known for known in (whole_s, module_s) if known is not None), default=None)


class Recalled(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Known schedules that a job took over from the record store after the import."""

    taken: Annotated[tuple[TaskIndex, ...], Meta(max_length=TASKS_MAX)] = ()
    """Tasks that need no search, because they have enough records of Purpose.KNOWN."""
    trials: Annotated[int, Meta(ge=0)] = 0
    """Number of trials of earlier jobs that count as trials of this one."""
    sources: Annotated[dict[TaskIndex, dict[Name, Text]], Meta(max_length=TASKS_MAX)] = {}
    """Origin of the known schedules of each task, by `short_digest` in hexadecimal digits."""
    teachers: Annotated[tuple[JobId, ...], Meta(max_length=EARLIER_MAX)] = ()
    """Earlier jobs that warm-start the search although the user named none."""

    def source(self, task: TaskIndex, digest: str) -> str:
        """Origin of a schedule; empty if it is from the job's own search."""
        return self.sources.get(task, {}).get(digest, "")


NOTHING_RECALLED = Recalled()


class NetworkStatus(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The state of a network that changes while its job runs."""

    comparison: Comparison | None = None
    """None until the baseline is measured, and without a baseline."""
    measured: NetworkMeasurements = NetworkMeasurements()
    recalled: Recalled = NOTHING_RECALLED
    movable: Annotated[tuple[Name, ...], Meta(max_length=8)] = ()
    """Stages that may run on other hosts than the client's."""
    divisible: Annotated[tuple[Name, ...], Meta(max_length=8)] = ()
    """Stages whose work several steps may share, each on a separate unit."""


NOT_MEASURED = NetworkStatus()
