"""How long stages take: learned on line, and shrunk to what is known of like stages.

A stage of a task is expected to take the mean of its own times, in which the next more general knowledge counts as one
more observation: the history of the same workload, target and stage; the times of the same stage in the job; in all
jobs; and last the client's own word. Typical estimates stand on geometric means, which one giant hardly moves.
Quantiles come from the recent ratios of what was measured to what was expected, whatever their distribution is (split
conformal prediction: Vovk et al., Algorithmic Learning in a Random World, 2005).
"""

import math
from bisect import bisect_left, insort
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from autosched.model import JobId, StageHistory, StepId, TaskIndex

MEMORY = 30.0
"""Observations after which older ones fade: stage times drift while a cost model grows."""
RATIOS = 200
"""Recent ratios per stage, from which quantiles are taken."""
RATIOS_MIN = 20
"""Minimum observed ratios for a quantile."""
RARE = 0.99
"""Quantile of the ratios of measured to expected seconds that sets a step's time limit."""
OVERRUN = 5.0
"""Factor of the quantile in a step's time limit."""
STEP_TIMEOUT_LEAST_S, STEP_TIMEOUT_MOST_S = 60.0, 86_400.0
"""Bounds of a step's time limit, in seconds."""
WARY_WEIGHT = 0.2
"""Observations that a prior counts for where something longer was seen, once estimates have proved wrong."""
LEAST_S = 1e-3
"""Minimum seconds of a step where logarithms are taken."""
SURE_COUNT = 4.0
"""Observations after which an estimate is judged by its error."""
PAIRS_MIN = 8
"""Minimum stages of jobs that were seen before the estimates as a whole are judged."""
WRONG_ABOVE = 0.4
"""Mean absolute log ratio above which estimates are wrong: 0.4 is a factor of 1.5. Noise alone stays below 0.35."""


@dataclass(slots=True)
class Mean:
    """A running mean that fades."""

    count: float = 0.0
    mean_s: float = 0.0

    def add(self, value: float) -> None:
        """One more observation."""
        self.count += self.count < MEMORY
        self.mean_s += (value - self.mean_s) / self.count

    def shrunk_to(self, prior_s: float | None, *, typical: bool = False, wary: bool = False) -> float | None:
        """With the prior as one more observation, on a logarithmic scale if `typical`; None when nothing is known."""
        if not self.count or prior_s is None:
            return self.mean_s if self.count else prior_s
        if typical:
            weight = WARY_WEIGHT if wary and self.mean_s > prior_s else 1.0
            return prior_s * math.pow(self.mean_s / prior_s, self.count / (self.count + weight)) if prior_s else 0.0
        return (self.count * self.mean_s + prior_s) / (self.count + 1.0)


def _means() -> "defaultdict[Any, Mean]":
    return defaultdict(Mean)


@dataclass(slots=True)
class JobTimes:
    """Stage times that one job has shown."""

    stages: defaultdict[str, Mean] = field(default_factory=_means)
    tasks: defaultdict[tuple[TaskIndex, str], Mean] = field(default_factory=_means)
    history: dict[tuple[TaskIndex, str], Mean] = field(default_factory=dict)
    recalled: defaultdict[str, Mean] = field(default_factory=_means)
    """The history, by stage alone."""
    errors: defaultdict[str, Mean] = field(default_factory=_means)
    """Log of measured over expected, by stage: what is left of it in the mean is no noise."""


_UNSEEN = JobTimes()


@dataclass(slots=True)
class Ratios:
    """Measured over expected time, of the last steps of a stage."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RATIOS))
    ordered: list[float] = field(default_factory=list)

    def add(self, ratio: float) -> None:
        """One more; the oldest goes."""
        if len(self.recent) == RATIOS:
            del self.ordered[bisect_left(self.ordered, self.recent[0])]
        self.recent.append(ratio)
        insort(self.ordered, ratio)

    def quantile(self, share: float) -> float | None:
        """The smallest ratio that this share of the next ones should not exceed; None when too few are known."""
        count = len(self.ordered)
        if count < RATIOS_MIN:
            return None
        return self.ordered[min(count - 1, math.ceil((count + 1) * share) - 1)]


class Calibration(Struct, frozen=True):
    """How good the estimates were."""

    steps: int
    """Steps that had an estimate when they started."""
    mape: float | None
    """Mean of abs(measured - expected) / measured."""
    coverage_p90: float | None
    """Share of the steps that took no longer than their 90 % quantile; 0.9 when all is well."""


@dataclass(slots=True)
class Estimates:
    """Everything learned. Jobs that have ended are forgotten, but for what they say of stages in general."""

    jobs: defaultdict[JobId, JobTimes] = field(default_factory=lambda: defaultdict(JobTimes))
    stages: defaultdict[str, Mean] = field(default_factory=_means)
    logs: defaultdict[str, Mean] = field(default_factory=_means)
    """Running means of the logarithms of the same seconds."""
    ratios: defaultdict[str, Ratios] = field(default_factory=lambda: defaultdict(Ratios))
    forecasts: dict[StepId, tuple[float, float | None, bool]] = field(default_factory=dict)
    """Running steps: expected seconds, their 90 % quantile, and whether that was more than a guess."""
    pairs: int = 0
    error_total: float = 0.0
    """Over stages of jobs: how many have sure estimates, and the sum of the absolute mean errors of these."""
    told: bool = False
    """Whether some of it is what earlier jobs left."""
    doubted: bool = False
    """A forecast proved wrong, and at least one job has been active ever since."""
    steps: int = 0
    error_sum: float = 0.0
    covered: int = 0
    bounded: int = 0

    def recall(self, job: JobId, stages: tuple[StageHistory, ...]) -> None:
        """Take over what earlier jobs left."""
        times, self.told = self.jobs[job], self.told or bool(stages)
        for past in stages:
            times.history[past.task, past.stage] = Mean(float(past.count), past.mean_s)
            times.recalled[past.stage].add(past.mean_s)

    def forget(self, job: JobId) -> None:
        """The job has ended."""
        if (times := self.jobs.pop(job, None)) is not None:
            self.pairs -= len(times.errors)
            self.error_total -= sum(abs(error.mean_s) for error in times.errors.values())
        self.doubted &= bool(self.jobs)

    def are_wrong(self) -> bool:
        """Whether they prove too bad to be followed."""
        return self.pairs >= PAIRS_MIN and self.error_total > WRONG_ABOVE * self.pairs

    def acquit(self) -> None:
        """Judge anew: only what was measured is followed from now on."""
        self.pairs, self.error_total, self.told, self.doubted = 0, 0.0, False, True
        for times in self.jobs.values():
            for foretold in (times.errors, times.history, times.recalled):
                foretold.clear()

    def begin(self, step: StepId, expected_s: float | None, stage: str, *, sure: bool) -> None:
        """Note what is expected of a step that starts."""
        if expected_s is not None and expected_s > 0:
            self.forecasts[step] = (expected_s, self.quantile_s(expected_s, stage, 0.9), sure)

    def expected_s(self, step: StepId) -> float | None:
        """Seconds that were expected of a running step when it started; None: nothing was known."""
        forecast = self.forecasts.get(step)
        return None if forecast is None else forecast[0]

    def drop(self, step: StepId) -> None:
        """A step ended otherwise than done: its time says nothing."""
        self.forecasts.pop(step, None)

    def learn(self, job: JobId, task: TaskIndex, stage: str, step: StepId, seconds: float) -> None:
        """A step is done."""
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

    # What it comes to -----------------------------------------------------------------------------------------------

    def of_job(self, job: JobId, stage: str, *, typical: bool = False) -> tuple[float | None, float]:
        """Expected seconds of a stage in a job, whichever task it is of, and on how many observations that rests."""
        times, count = self.jobs.get(job, _UNSEEN), 0.0
        if (recalled := times.recalled.get(stage)) is not None:
            prior_s, count = recalled.mean_s, 1.0
        elif (overall := self.stages.get(stage)) is None:
            prior_s = None
        else:
            prior_s = math.exp(self.logs[stage].mean_s) if typical else overall.mean_s
        if (own := times.stages.get(stage)) is not None:
            prior_s, count = own.shrunk_to(prior_s, typical=typical, wary=self.doubted), count + own.count
        return prior_s, count

    def of_task(
        self, job: JobId, task: TaskIndex, stage: str, claim_s: float | None = None, *, typical: bool = False
    ) -> float | None:
        """Expected seconds of a stage of a task; None when nothing is known."""
        return self.narrow(self.of_job(job, stage, typical=typical)[0], job, (task, stage), claim_s)

    def narrow(self, job_s: float | None, job: JobId, of: tuple[TaskIndex, str], claim_s: float | None) -> float | None:
        """The same, where it is known already what is expected of that stage in the job."""
        times = self.jobs.get(job, _UNSEEN)
        past, own = times.history.get(of), times.tasks.get(of)
        prior_s = past.mean_s if past is not None else claim_s if job_s is None else job_s
        return own.shrunk_to(prior_s) if own is not None else prior_s

    def quantile_s(self, expected_s: float, stage: str, share: float) -> float | None:
        """The seconds that this share of such steps should not exceed; None while too few have been seen."""
        ratios = self.ratios.get(stage)
        ratio = ratios.quantile(share) if ratios is not None else None
        return None if ratio is None else expected_s * ratio

    def timeout_s(self, unseen_s: float, asked_s: float | None, expected_s: float | None, stage: str) -> float:
        """When such a step is surely overdue: far beyond what was seen, and not before the time that its user asked
        for. `unseen_s`: where too few were seen and no user asked; also the least, if it is less than that."""
        rare_s = None if expected_s is None else self.quantile_s(expected_s, stage, RARE)
        if rare_s is None:
            return asked_s or unseen_s
        least_s = asked_s or min(STEP_TIMEOUT_LEAST_S, unseen_s)
        return min(max(least_s, OVERRUN * rare_s), STEP_TIMEOUT_MOST_S)

    def calibration(self) -> Calibration:
        """How good the estimates were so far."""
        return Calibration(
            self.steps,
            self.error_sum / self.steps if self.steps else None,
            self.covered / self.bounded if self.bounded else None,
        )
