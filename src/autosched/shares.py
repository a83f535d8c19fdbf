"""How far a job has come: its gain, and which tasks hold how much of the network's latency."""

from autosched import units
from autosched.protocol import JobView, TaskView


def tasks_by_share(job: JobView) -> list[tuple[TaskView, float | None]]:
    """Tasks with their share of the estimate, the largest first; tasks without a valid record at the end."""
    times = {task.task: task.weight * task.best_s for task in job.tasks if task.best_s is not None}
    whole = sum(times.values())
    shares = [(task, times[task.task] / whole if task.task in times else None) for task in job.tasks]
    return sorted(shares, key=lambda pair: (pair[1] is None, -(pair[1] or 0.0), pair[0].task))


def gain(view: JobView) -> str:
    """Where it started and how far it came: " (start 14.9 ms, x3.10)"."""
    if not view.first_estimate_s or not view.estimate_s:
        return ""
    return f" (start {units.latency(view.first_estimate_s)}, {units.ratio(view.first_estimate_s / view.estimate_s)})"
