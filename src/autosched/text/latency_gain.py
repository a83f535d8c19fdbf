"""Phrases about a job's latency and its gain, for tables, progress displays and pages."""

from autosched import formatting
from autosched.network_status import GoalReached
from autosched.protocol import JobView, TaskView
from autosched.records.network_estimate import calls_made

AS_IT_IS = "as it is"
"""The form of a model that is not mentioned."""
_REACHED = {
    GoalReached.MET: "met with", GoalReached.MISSED: "not met, the best is",
    GoalReached.UNCLEAR: "neither met nor missed for sure,",
}  # fmt: skip


def gain(view: JobView) -> str:
    """Comparison with the baseline, or with the start if there is no baseline: " (start 14.9 ms, x3.10)"."""
    if (against := compared(view)) != "":
        return f" ({against})"
    if not view.first_estimate_s or not view.whole_s:
        return ""
    ratio = formatting.ratio(view.first_estimate_s / view.whole_s)
    return f" (start {formatting.latency(view.first_estimate_s)}, {ratio})"


def best(view: JobView) -> str:
    """The network's latency and its gain: "best 4.81 ms (start 14.9 ms, x3.10)"; "result" for an ended job.

    Empty while unknown.
    """
    if view.whole_s is None:
        return ""
    word = "best" if view.result_s is None else "result"
    return f"{word} {formatting.latency(view.whole_s)}{gain(view)}"


def goal(view: JobView) -> str:
    """State of the latency goal; empty without one."""
    if (known := view.goal) is not None:
        goal_s, ours_s, low_s, high_s = map(
            formatting.latency, (known.goal_s, known.latency_s, known.low_s, known.high_s)
        )
        said = f"goal {goal_s}: {_REACHED[known.reached]} {ours_s} ({low_s} to {high_s})"
        return f"{said}; the search ended: {known.ended}" if known.ended else said
    spec = view.spec
    if spec is None or not spec.names_latency:
        return ""
    if spec.latency_goal_s is not None:
        return f"goal {formatting.latency(spec.latency_goal_s)}: nothing is measured yet"
    return f"goal {formatting.share(spec.improve_by or 0.0, 1.0)} less than what is known: nothing is measured yet"


def goal_advice(view: JobView, gain: float | None) -> str:
    """Whether more trials would help to meet a goal; empty if it is met, or there is none.

    gain: expected ratio of latencies with twice the trials; None if unknown.
    """
    if (known := view.goal) is None or known.reached is GoalReached.MET:
        return ""
    missing = known.latency_s / known.goal_s
    if gain is None:
        return "whether more trials would help is not known: too few were made"
    if gain >= missing:
        return f"twice the trials may meet the goal: they are expected to bring {formatting.ratio(gain)}"
    return (
        f"twice the trials will hardly meet the goal: they are expected to bring {formatting.ratio(gain)} of"
        f" {formatting.ratio(missing)}"
    )


def against(view: JobView) -> str:
    """The result, otherwise the ready module, otherwise the expected latency, compared with the baseline: "x1.20
    faster"."""
    if (comparison := view.comparison) is None:
        return ""
    ours_s = comparison.module_s if comparison.module_s is not None and view.result_s is None else view.whole_s
    return "" if ours_s is None else formatting.speed(comparison.baseline.median_s, ours_s)


def compared(view: JobView) -> str:
    """The latency compared with the baseline's: "x1.20 faster than ONNX Runtime, 9.50 ms"; empty if unknown.

    "tuned operators alone" marks an estimate without the untuned operators, before the first measured build.
    """
    if (comparison := view.comparison) is None:
        return ""
    baseline = comparison.baseline
    form = f" {baseline.form}" if baseline.form != AS_IT_IS else ""
    rival = f"{baseline.runtime}{form}, {formatting.latency(baseline.median_s)}"
    if view.whole_s is None:
        return rival
    alone = "; tuned operators alone" if comparison.rest_s is None and view.result_s is None else ""
    return f"{formatting.speed(baseline.median_s, view.whole_s)} than {rival}{alone}"


def ready(view: JobView) -> str:
    """The user's module while the search goes on; empty without one, and after the result."""
    if (comparison := view.comparison) is None or comparison.module_s is None or view.result_s is not None:
        return ""
    after = f" after {formatting.duration(comparison.faster_after_s)}" if comparison.faster_after_s is not None else ""
    baseline = comparison.baseline
    said = f"{formatting.latency(comparison.module_s)}, {formatting.speed(baseline.median_s, comparison.module_s)}"
    first = f"; the first such module{after}" if comparison.module_s <= baseline.median_s else ""
    return f"{said} than {baseline.runtime}{first}"


def tasks_by_share(job: JobView) -> list[tuple[TaskView, float | None]]:
    """Tasks with their share of the estimate, the largest first; tasks without a valid record at the end."""
    best_s = {task.task: task.best_s for task in job.tasks if task.best_s is not None}
    calls = calls_made(job.tasks, best_s)
    times = {task: calls[task] * latency_s for task, latency_s in best_s.items()}
    whole = sum(times.values())
    shares = [(task, times[task.task] / whole if task.task in times else None) for task in job.tasks]
    return sorted(shares, key=lambda pair: (pair[1] is None, -(pair[1] or 0.0), pair[0].task))
