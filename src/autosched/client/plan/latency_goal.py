"""Decides whether a network meets its latency goal: a service level instead of a number of trials. Pure.

The best known schedules are compiled and measured before any search (Lorien 3; thesis 4.3: "check the known best
configurations and see if the SLA is already met before tuning starts"). The search ends when a measured build of the
whole network meets the goal with its confidence interval.
"""

from collections.abc import Sequence

from autosched.backend import Network, Timing
from autosched.errors import RequestError
from autosched.formatting import latency
from autosched.model import JobSpec
from autosched.network_status import GoalReached, LatencyGoal, MeasuredBuild
from autosched.records.network_estimate import network_s
from autosched.records.statistics import REPEATED


def goal_s(spec: JobSpec, builds: Sequence[MeasuredBuild]) -> float | None:
    """The latency goal in seconds; None if there is none, or none before an undisturbed build."""
    if spec.latency_goal_s is not None:
        return spec.latency_goal_s
    first = next((build for build in builds if not build.disturbed), None)
    return None if spec.improve_by is None or first is None else (1.0 - spec.improve_by) * first.latency_s


def check(spec: JobSpec, network: Network, peak_flops: float) -> None:
    """Raise RequestError for a latency that the cores cannot reach at their peak speed.

    peak_flops: float32 operations per second of the device's cores, an upper bound.
    """
    if spec.latency_goal_s is None:
        return
    flops = network_s(network.tasks, {info.task: info.flops for info in network.tasks}) or 0.0
    bound_s = flops / peak_flops
    if spec.latency_goal_s < bound_s:
        raise RequestError(
            f"a latency of {latency(spec.latency_goal_s)} cannot be reached: the network computes"
            f" {flops / 1e9:.3g} billion operations, for which these cores need {latency(bound_s)} at their peak of"
            f" {peak_flops / 1e9:,.0f} billion a second. Ask for more than that, give the job more cores, or take a"
            " smaller network"
        )


def reached(goal: float, measured: Timing) -> GoalReached:
    """Compare a measurement with a goal in seconds."""
    if measured.high_s * (1.0 + REPEATED) <= goal:
        return GoalReached.MET
    if measured.low_s * (1.0 - REPEATED) > goal:
        return GoalReached.MISSED
    return GoalReached.UNCLEAR


def result(goal: float, measured: Timing, ended: str) -> LatencyGoal:
    """The goal as reported to the user. `ended`: why the search ended, in words; empty while it goes on."""
    return LatencyGoal(
        goal_s=goal, latency_s=measured.median_s, low_s=measured.low_s, high_s=measured.high_s,
        reached=reached(goal, measured), ended=ended,
    )  # fmt: skip
