"""Estimates of stage durations: learned online, and shrunk towards more general estimates.

The estimate for a stage of a task is the mean of its own durations, in which the next more general estimate counts as
one more observation: the history of the same workload, target and stage; the same stage in the job; in all jobs; and
last the client's own estimate. Typical estimates use geometric means, on which one outlier has little effect. Quantiles
come from the recent ratios of measured to expected durations, whatever their distribution is (split conformal
prediction: Vovk et al., Algorithmic Learning in a Random World, 2005).
"""

import math
from bisect import bisect_left, insort
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from autosched.model import JobId, StageHistory, StepId, TaskIndex

MEMORY = 30.0
"""Number of observations after which older ones fade. Durations drift while a cost model grows."""
RATIOS = 200
"""Number of recent ratios of each stage, from which quantiles are taken."""
RATIOS_MIN = 20
"""Minimum number of ratios for a quantile."""
RARE = 0.99
"""Quantile of the ratios of measured to expected seconds that sets a step's time limit."""
OVERRUN = 5.0
"""Factor of the quantile in a step's time limit."""
STEP_TIMEOUT_LEAST_S, STEP_TIMEOUT_MOST_S = 60.0, 86_400.0
"""Bounds of a step's time limit, in seconds."""
CAUTIOUS_WEIGHT = 0.2
"""Weight of a prior in observations, where a longer duration was seen and estimates were wrong before."""
LEAST_S = 1e-3
"""Minimum duration in seconds, where logarithms are taken."""
SURE_COUNT = 4.0
"""Number of observations after which an estimate is judged by its error."""
PAIRS_MIN = 8
"""Minimum number of stages of jobs before the estimates as a whole are judged."""
WRONG_ABOVE = 0.4
"""Mean absolute log ratio above which estimates are wrong: 0.4 is a factor of 1.5. Noise alone stays below 0.35."""


@dataclass(slots=True)
class Mean:
    """A running mean with fading memory."""

    count: float = 0.0
    mean_s: float = 0.0

    def add(self, value: float) -> None:
        """Add an observation."""
        self.count += self.count < MEMORY
        self.mean_s += (value - self.mean_s) / self.count

    def shrunk_to(self, prior_s: float | None, *, typical: bool = False, cautious: bool = False) -> float | None:
        """The mean with the prior as one more observation, on a logarithmic scale if `typical`; None: no data."""
        if not self.count or prior_s is None:
            return self.mean_s if self.count else prior_s
        if typical:
            weight = CAUTIOUS_WEIGHT if cautious and self.mean_s > prior_s else 1.0
            return prior_s * math.pow(self.mean_s / prior_s, self.count / (self.count + weight)) if prior_s else 0.0
        return (self.count * self.mean_s + prior_s) / (self.count + 1.0)


def _means() -> "defaultdict[Any, Mean]":
    return defaultdict(Mean)


@dataclass(slots=True)
class JobTimes:
    """Stage durations of one job."""

    stages: defaultdict[str, Mean] = field(default_factory=_means)
    tasks: defaultdict[tuple[TaskIndex, str], Mean] = field(default_factory=_means)
    history: dict[tuple[TaskIndex, str], Mean] = field(default_factory=dict)
    recalled: defaultdict[str, Mean] = field(default_factory=_means)
    """The history, by stage."""
    errors: defaultdict[str, Mean] = field(default_factory=_means)
    """Logarithm of measured over expected seconds, by stage. Its mean is the systematic error."""


_UNSEEN = JobTimes()


@dataclass(slots=True)
class Ratios:
    """Ratios of measured to expected seconds of a stage's last steps."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RATIOS))
    ordered: list[float] = field(default_factory=list)

    def add(self, ratio: float) -> None:
        """Add a ratio; the oldest one is dropped."""
        if len(self.recent) == RATIOS:
            del self.ordered[bisect_left(self.ordered, self.recent[0])]
        self.recent.append(ratio)
        insort(self.ordered, ratio)

    def quantile(self, share: float) -> float | None:
        """The ratio that this share of further ratios should not exceed; None: too few are known."""
        count = len(self.ordered)
        if count < RATIOS_MIN:
            return None
        return self.ordered[min(count - 1, math.ceil((count + 1) * share) - 1)]


class Calibration(Struct, frozen=True):
    """Quality of the estimates."""

    steps: int
    """Number of steps with an estimate at their start."""
    mape: float | None
    """Mean of abs(measured - expected) / measured."""
    coverage_p90: float | None
    """Share of the steps within their 90 % quantile; ideally 0.9."""


@dataclass(slots=True)
class Estimates:
    """All learned durations. Ended jobs are forgotten, except for their part in the means of stages."""

    jobs: defaultdict[JobId, JobTimes] = field(default_factory=lambda: defaultdict(JobTimes))
    stages: defaultdict[str, Mean] = field(default_factory=_means)
    logs: defaultdict[str, Mean] = field(default_factory=_means)
    """Running means of the logarithms of the durations in `stages`."""
    ratios: defaultdict[str, Ratios] = field(default_factory=lambda: defaultdict(Ratios))
    forecasts: dict[StepId, tuple[float, float | None, bool]] = field(default_factory=dict)
    """For each running step: expected seconds, 90 % quantile, and whether the estimate is sure."""
    pairs: int = 0
    error_total: float = 0.0
    """`pairs`: number of stages of jobs with sure estimates. `error_total`: sum of their absolute mean errors."""
    told: bool = False
    """Whether estimates of earlier jobs are used."""
    doubted: bool = False
    """Whether estimates were wrong since the last time without active jobs."""
    steps: int = 0
    error_sum: float = 0.0
    covered: int = 0
    bounded: int = 0

    def recall(self, job: JobId, stages: tuple[StageHistory, ...]) -> None:
        """Use the stage durations of earlier jobs."""
        times, self.told = self.jobs[job], self.told or bool(stages)
        for past in stages:
            times.history[past.task, past.stage] = Mean(float(past.count), past.mean_s)
            times.recalled[past.stage].add(past.mean_s)

    def forget(self, job: JobId) -> None:
        """Forget an ended job."""
        if (times := self.jobs.pop(job, None)) is not None:
            self.pairs -= len(times.errors)
            self.error_total -= sum(abs(error.mean_s) for error in times.errors.values())
        self.doubted &= bool(self.jobs)

    def are_wrong(self) -> bool:
        """Whether the estimates are too inaccurate to be used."""
        return self.pairs >= PAIRS_MIN and self.error_total > WRONG_ABOVE * self.pairs

    def start_again(self) -> None:
        """Drop all predictions and judge anew: only measured durations are used from now on."""
        self.pairs, self.error_total, self.told, self.doubted = 0, 0.0, False, True
        for times in self.jobs.values():
            for predicted in (times.errors, times.history, times.recalled):
                predicted.clear()

    def begin(self, step: StepId, expected_s: float | None, stage: str, *, sure: bool) -> None:
        """Keep the expected duration of a starting step."""
        if expected_s is not None and expected_s > 0:
            self.forecasts[step] = (expected_s, self.quantile_s(expected_s, stage, 0.9), sure)

    def expected_s(self, step: StepId) -> float | None:
        """Expected seconds of a running step, as of its start; None: not known."""
        forecast = self.forecasts.get(step)
        return None if forecast is None else forecast[0]

    def drop(self, step: StepId) -> None:
        """Forget the estimate of a step that was not done: its duration is not used."""
        self.forecasts.pop(step, None)

    def learn(self, job: JobId, task: TaskIndex, stage: str, step: StepId, seconds: float) -> None:
        """Learn from the duration of a step that is done."""
        if (forecast := self.forecasts.pop(step, None)) is not None and seconds > 0:
            expected_s, p90_s, sure = forecast
            self.steps += 1
            self.error_sum += abs(seconds - expected_s) / seconds
            self.ratios[stage].add(seconds / expected_s)
            if p90_s is not None:
                self.bounded += 1
                self.covered += seconds <= p90_s
            if sure:
                self._judge(job, stage, math.log(seconds / expected_s))
        times = self.jobs[job]
        self.stages[stage].add(seconds)
        self.logs[stage].add(math.log(max(seconds, LEAST_S)))
        times.stages[stage].add(seconds)
        times.tasks[task, stage].add(seconds)

    def _judge(self, job: JobId, stage: str, error: float) -> None:
        errors = self.jobs[job].errors
        if stage not in errors:
            self.pairs += 1
        mean = errors[stage]
        self.error_total -= abs(mean.mean_s)
        mean.add(error)
        self.error_total += abs(mean.mean_s)

    # Estimates ------------------------------------------------------------------------------------------------------

    def of_job(self, job: JobId, stage: str, *, typical: bool = False) -> tuple[float | None, float]:
        """Expected seconds of a stage in a job, for any task, and the number of observations behind them."""
        times, count = self.jobs.get(job, _UNSEEN), 0.0
        if (recalled := times.recalled.get(stage)) is not None:
            prior_s, count = recalled.mean_s, 1.0
        elif (overall := self.stages.get(stage)) is None:
            prior_s = None
        else:
            prior_s = math.exp(self.logs[stage].mean_s) if typical else overall.mean_s
        if (own := times.stages.get(stage)) is not None:
            prior_s, count = own.shrunk_to(prior_s, typical=typical, cautious=self.doubted), count + own.count
        return prior_s, count

    def of_task(
        self, job: JobId, task: TaskIndex, stage: str, claim_s: float | None = None, *, typical: bool = False
    ) -> float | None:
        """Expected seconds of a stage of a task; None: not known."""
        return self.narrow(self.of_job(job, stage, typical=typical)[0], job, (task, stage), claim_s)

    def narrow(self, job_s: float | None, job: JobId, of: tuple[TaskIndex, str], claim_s: float | None) -> float | None:
        """The same, given the expected seconds of the stage in the job."""
        times = self.jobs.get(job, _UNSEEN)
        past, own = times.history.get(of), times.tasks.get(of)
        prior_s = past.mean_s if past is not None else claim_s if job_s is None else job_s
        return own.shrunk_to(prior_s) if own is not None else prior_s

    def quantile_s(self, expected_s: float, stage: str, share: float) -> float | None:
        """Seconds that this share of such steps should not exceed; None: too few were seen."""
        ratios = self.ratios.get(stage)
        ratio = ratios.quantile(share) if ratios is not None else None
        return None if ratio is None else expected_s * ratio

    def timeout_s(self, unseen_s: float, asked_s: float | None, expected_s: float | None, stage: str) -> float:
        """Time limit of a step in seconds: far above measured durations, and at least `asked_s`, which the user chose.
        `unseen_s`: limit where too few steps were seen and the user chose none; also bounds the minimum."""
        rare_s = None if expected_s is None else self.quantile_s(expected_s, stage, RARE)
        if rare_s is None:
            return asked_s or unseen_s
        least_s = asked_s or min(STEP_TIMEOUT_LEAST_S, unseen_s)
        return min(max(least_s, OVERRUN * rare_s), STEP_TIMEOUT_MOST_S)

    def calibration(self) -> Calibration:
        """Quality of the estimates so far."""
        return Calibration(
            self.steps,
            self.error_sum / self.steps if self.steps else None,
            self.covered / self.bounded if self.bounded else None,
        )
