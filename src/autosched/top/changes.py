"""Differences of two views of a daemon, in words."""

from collections.abc import Iterator

from autosched import formatting
from autosched.protocol import DeviceCondition, JobView, UnitView
from autosched.text.latency_gain import gain
from autosched.top.daemon_view import DaemonView


def news(before: DaemonView | None, now: DaemonView) -> Iterator[str]:
    """One line for each difference. The first view has no news."""
    if before is None:
        return
    if before.info.pid != now.info.pid:
        yield "another daemon answers: it was started again"
    if (before.info.policy, before.info.goal) != (now.info.policy, now.info.goal):
        yield f"policy {now.info.policy}, goal {now.info.goal}"
    for warning in now.info.warnings:
        if warning not in before.info.warnings:
            yield f"! {warning}"
    jobs = {job.job: job for job in before.jobs}
    for job in now.jobs:
        yield from _of_job(jobs.get(job.job), job)
    known = {unit.unit: unit for unit in before.units}
    for unit in now.units:
        if unit.unit in known:
            yield from _of_unit(known[unit.unit], unit)


def _of_job(before: JobView | None, job: JobView) -> Iterator[str]:
    name = f"job {job.job} {job.name}"
    if before is None:
        if job.ended_at is None:
            yield f"{name} was submitted"
        return
    if before.state != job.state:
        why = f": {job.failure.message.partition(chr(10))[0]}" if job.failure is not None else ""
        yield f"{name} is {job.state}{why}"
    if job.whole_s is not None and job.whole_s != before.whole_s:
        yield f"{name}: {formatting.latency(job.whole_s)}{gain(job)}"
    if job.failed_steps > before.failed_steps:
        yield f"{name}: a step failed: {job.last_error.partition(chr(10))[0]}"


def _of_unit(before: UnitView, unit: UnitView) -> Iterator[str]:
    if unit.drained and not before.drained:
        yield f"{unit.unit} is drained: {unit.drained}"
    elif before.drained and not unit.drained:
        yield f"{unit.unit} gets steps again"
    drifts = unit.condition is DeviceCondition.DRIFTING
    if drifts != (before.condition is DeviceCondition.DRIFTING):
        yield f"{unit.unit} {'drifts' if drifts else 'is steady again'}"
