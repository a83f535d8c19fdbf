"""Chooses the earlier jobs from which a search is warm-started: those with the most similar tasks. Pure.

A cost model learns from other workloads (Chen et al., "Learning to Optimize Tensor Programs", 2018, section 4). A job
is similar to another one by the share of the work, in floating-point operations, for which it has tasks of the same
operator and similar sizes.
"""

from collections import defaultdict
from collections.abc import Iterable, Reversible, Sequence
from itertools import islice
from math import dist, exp

from msgspec import Struct

from autosched.core.state import Job
from autosched.model import JobId, JobSpec, TaskInfo
from autosched.recordstore import shapes

LOOKED_AT = 2_000
"""Maximum number of earlier jobs that are considered, the latest ones."""
READ = 20
"""Maximum number of earlier jobs whose tasks are compared."""
CIRCUMSTANCES = ("device", "target", "backend")
"""Fields of a submission that must be equal."""
TEACHERS_MAX = 2
"""Maximum number of jobs that are chosen: each model is imported again."""
LIKENESS_MIN = 0.25
"""Minimum similarity of the first job that is chosen."""
GAIN_MIN = 0.1
"""Minimum similarity that each further job adds."""
TRIALS_OF_TASK = 16
"""Average records of a task from which on a job's similarity counts in full."""


class PastJob(Struct, frozen=True):
    """An earlier job, its tasks and number of records."""

    job: JobId
    tasks: tuple[TaskInfo, ...]
    records: int
    """Number of the job's records."""


def latest(spec: JobSpec, jobs: Reversible[Job]) -> list[JobId]:
    """The ended jobs with the same device, target and backend, the latest first.

    `jobs`: in the order of submission. Schedules for other devices or targets predict little, and a backend does not
    know the candidates of another one.
    """
    able = (
        job.id
        for job in islice(reversed(jobs), LOOKED_AT)
        if job.state.ended and all(getattr(job.spec, name) == getattr(spec, name) for name in CIRCUMSTANCES)
    )
    return list(islice(able, READ))


def choose(tasks: Sequence[TaskInfo], past: Iterable[PastJob]) -> list[JobId]:
    """The earlier jobs from which to warm-start a network of these tasks: the most similar first, of equal ones the
    latest."""
    left = sorted(past, key=lambda one: one.job, reverse=True)
    wanted = [(shapes.parse(info.shape), work) for info, work in zip(tasks, _shares(tasks), strict=True)]
    likeness = {one.job: _likeness(wanted, one) for one in left}
    reached, chosen = [0.0] * len(wanted), list[JobId]()
    for number in range(TEACHERS_MAX):
        gains = {
            job: sum(work * max(0.0, new - old) for (_, work), new, old in zip(wanted, found, reached, strict=True))
            for job, found in likeness.items()
        }
        best = max(gains, key=lambda job: gains[job], default=None)
        if best is None or gains[best] < (GAIN_MIN if number else LIKENESS_MIN):
            break
        chosen.append(best)
        reached = [max(new, old) for new, old in zip(likeness.pop(best), reached, strict=True)]
    return chosen


def _likeness(wanted: Iterable[tuple[shapes.Shape, float]], past: PastJob) -> list[float]:
    """Similarity of the job's tasks to each wanted task: 1 for equal sizes, half for one size twice as large."""
    known: defaultdict[str, list[tuple[float, ...]]] = defaultdict(list)
    for info in past.tasks:
        shape = shapes.parse(info.shape)
        known[shape.operator].append(shape.place)
    sure = min(1.0, past.records / (TRIALS_OF_TASK * max(1, len(past.tasks))))
    return [
        sure * max((exp(-dist(shape.place, place)) for place in known[shape.operator]), default=0.0)
        for shape, _ in wanted
    ]


def _shares(tasks: Sequence[TaskInfo]) -> list[float]:
    """Share of each task in the work of the network."""
    work = [info.weight * (info.flops or 1.0) for info in tasks]
    whole = sum(work)
    return [one / whole for one in work]
