"""Predicts the result of a job at its submission, from earlier jobs of the same network. Pure.

A latency that an earlier job has measured is known. Beyond it the best latency is taken to fall as a power of the
number of trials, as it did in that job: from the first valid schedule of each task to the best ones.
"""

from collections.abc import Iterable
from itertools import islice
from math import log

from msgspec import Struct

from autosched.model import JobId, JobSpec
from autosched.protocol import Chance, Forecast
from autosched.records.statistics import REPEATED

LOOKED_AT = 2_000
"""Maximum number of earlier jobs that are considered, the latest ones."""
ALIKE = 20
"""Maximum number of earlier jobs of the same network that are used."""
MORE = 2.0
"""Ratio to the trials of earlier jobs up to which a latency is likely to be reached."""


CIRCUMSTANCES = ("shapes", "target", "device", "backend", "options")
"""Fields of a submission besides the model that must be equal."""


class Past(Struct, frozen=True):
    """An earlier job of the same network that was measured as a whole."""

    job: JobId
    result_s: float
    """Latency that the job has measured."""
    trials: int
    tasks: int
    took_s: float
    first_s: float | None = None
    """Estimate of the network with the first valid schedules."""
    last_s: float | None = None
    """Estimate of the network with the best schedules."""
    baseline_s: float | None = None
    """Latency of the baseline."""


def is_alike(spec: JobSpec, other: JobSpec) -> bool:
    """Whether two jobs tune the same network, for the same target by the same backend."""
    return spec.model == other.model and all(getattr(spec, name) == getattr(other, name) for name in CIRCUMSTANCES)


def latest_alike(spec: JobSpec, jobs: Iterable[tuple[JobId, JobSpec]]) -> list[JobId]:
    """The jobs among these that tune the same network, the latest first. `jobs`: the latest first."""
    alike = (job for job, other in islice(jobs, LOOKED_AT) if is_alike(spec, other))
    return list(islice(alike, ALIKE))


def forecast(spec: JobSpec, past: Iterable[Past]) -> Forecast:
    """Predict a job's result from earlier jobs of the same network, in any order."""
    known = sorted(past, key=lambda one: (one.result_s, one.job))
    if not known or spec.fresh:
        return Forecast(Chance.UNKNOWN)
    best = known[0]
    goal_s = _goal_s(spec, best)
    searched = [one.took_s for one in known if one.trials] or [one.took_s for one in known]
    if goal_s is None or best.result_s * (1.0 + REPEATED) <= goal_s:
        quick_s = min(one.took_s for one in known)
        return Forecast(Chance.KNOWN, best.result_s, best.job, quick_s if goal_s is not None else searched[-1])
    chance = Chance.LIKELY if _expected_s(best) <= goal_s else Chance.UNLIKELY
    return Forecast(chance, best.result_s, best.job, max(searched))


def _goal_s(spec: JobSpec, best: Past) -> float | None:
    """The latency that the job is to reach; None if it ends with its trials."""
    if spec.latency_goal_s is not None:
        return spec.latency_goal_s
    if spec.improve_by is not None:
        return (1.0 - spec.improve_by) * best.result_s
    return best.baseline_s if spec.until_faster else None


def _expected_s(best: Past) -> float:
    """Expected latency after `MORE` times the trials."""
    if not best.first_s or not best.last_s or best.trials <= best.tasks or best.first_s <= best.last_s:
        return best.result_s
    power = log(best.first_s / best.last_s) / log(best.trials / max(1, best.tasks))
    return float(best.result_s * MORE**-power)
