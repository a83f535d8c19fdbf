"""Lower bounds of an instance's makespan."""

import heapq
from collections.abc import Iterable

from autosched.workloads.instances import Instance, InstanceJob

Step = tuple[float, float, float]
"""Head, work and tail in seconds: its earliest start, its duration, and the work of its job that must follow."""
Chain = list[Step]
"""Steps of one job on one kind of resource, in order."""


def lower_bound_s(instance: Instance) -> float:
    """The maximum of the busiest host, the devices together with what must precede and follow them, and the longest
    job."""
    jobs = instance.jobs
    hosts = (
        _busy_until([_on_host(job) for job in jobs if job.host == host], 1)
        for host in dict.fromkeys(job.host for job in jobs)
    )
    devices = _busy_until([_on_device(job) for job in jobs], instance.devices)
    longest = max(job.arrival_s + own_work_s(job) for job in jobs)
    return max(*hosts, devices, longest)


def own_work_s(job: InstanceJob) -> float:
    """Duration of the job without other jobs."""
    return sum(sum(iteration) for iteration in job.iterations)


def host_work_s(job: InstanceJob) -> float:
    """Seconds of its builds and updates."""
    return sum(build + update for build, _, update in job.iterations)


def device_work_s(job: InstanceJob) -> float:
    """Seconds of its profiling."""
    return sum(profile for _, profile, _ in job.iterations)


def _on_host(job: InstanceJob) -> Chain:
    steps, before = list[Step](), job.arrival_s
    after = own_work_s(job)
    for build, profile, update in job.iterations:
        steps += [(before, build, after - build), (before + build + profile, update, after - build - profile - update)]
        before += build + profile + update
        after -= build + profile + update
    return steps


def _on_device(job: InstanceJob) -> Chain:
    steps, before = list[Step](), job.arrival_s
    after = own_work_s(job)
    for build, profile, update in job.iterations:
        after -= build + profile
        steps.append((before + build, profile, after))
        after -= update
        before += build + profile + update
    return steps


def _busy_until(chains: Iterable[Chain], units: int) -> float:
    """The largest bound of the jobs that start late: those after the first, after the second, and so on.

    Each unit's first step is another step, and so is each one's last: the units wait at least for the smallest heads,
    one each, and what follows takes at least the smallest tails.
    """
    bound, work = 0.0, 0.0
    heads, tails = list[float](), list[float]()
    for chain in sorted(chains, reverse=True):
        work += sum(seconds for _, seconds, _ in chain)
        heads = heapq.nsmallest(units, heads + [head for head, _, _ in chain])
        tails = heapq.nsmallest(units, tails + [tail for _, _, tail in chain])
        bound = max(bound, _shortest(work, heads, tails))
    return bound


def _shortest(work: float, heads: list[float], tails: list[float]) -> float:
    """Length of the shortest schedule on any number of units."""
    shortest, idle = float("inf"), 0.0
    for used, (head, tail) in enumerate(zip(heads, tails, strict=True), start=1):
        idle += head + tail
        shortest = min(shortest, (work + idle) / used)
    return shortest
