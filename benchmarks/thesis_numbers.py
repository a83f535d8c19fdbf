"""Figures of the thesis' evaluation, from steps and from pairs of measurements. Pure."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median

from msgspec import Struct

from autosched.protocol import Span
from autosched.records.statistics import interval

WORKING = "working"
CAUSES = {
    WORKING: "the stage of a step runs on it",
    "handing over": "leased, and the stage does not run: order, report, decision, commit to disk",
    "held back": "free, and a step waits for it: the policy wants it to wait",
    "other resource": "no step waits for it: all that could use it next runs on the other resource, or waits for that",
    "clients": "nothing runs or waits anywhere: clients start, or are about to say what comes next",
    "start": "before a step wanted it for the first time",
    "tail": "after its last step: what is left needs the other resource only",
}
"""State of a resource at a moment, the first that applies; all but the first are idle time."""
RESAMPLES = 4_000
CONFIDENCE = 0.95
SAME_MOMENT_S = 1e-6
"""Maximum difference in seconds: the daemon reads its clock once for the end of a step and the start of the next
one."""


class Estimate(Struct, frozen=True):
    """A ratio minus one, with its 95 % interval, and the median absolute deviation of single ratios."""

    bias: float
    low: float
    high: float
    spread: float
    count: int


def ended(span: Span) -> float:
    """Returns the end by the scheduler's clock; a step that has not ended takes no time."""
    return span.started_at if span.ended_at is None else span.ended_at


def worked_share(span: Span) -> float:
    """Returns the share of a lease in which the stage ran, by its client's clock."""
    lease_s = ended(span) - span.started_at
    return min(1.0, (span.worked_s or 0.0) / lease_s) if lease_s > 0 else 1.0


def causes(spans: Sequence[Span], unit: str, begin: float, end: float) -> dict[str, float]:
    """Returns the seconds between `begin` and `end` that a unit spent on each of CAUSES; they add up to the whole.

    Each pool has one unit here, so that a step that got the unit has waited for just that.
    """
    own = [span for span in spans if unit in span.units]
    first = min((span.queued_at for span in own), default=end)
    last = max((ended(span) for span in own), default=begin)
    moments = {t for span in spans for t in (span.queued_at, span.started_at, ended(span))}
    edges = sorted({begin, end, *(t for t in moments if begin < t < end)})
    total = dict.fromkeys(CAUSES, 0.0)
    for left, right in pairwise(edges):
        middle, length_s = (left + right) / 2, right - left
        held = [worked_share(span) for span in own if span.started_at <= middle < ended(span)]
        if held:
            total[WORKING] += length_s * max(held)
            total["handing over"] += length_s * (1 - max(held))
        elif middle < first:
            total["start"] += length_s
        elif middle >= last:
            total["tail"] += length_s
        elif any(span.queued_at <= middle < span.started_at for span in own):
            total["held back"] += length_s
        elif any(span.queued_at <= middle < ended(span) for span in spans):
            total["other resource"] += length_s
        else:
            total["clients"] += length_s
    return total


def overheads_s(spans: Sequence[Span], unit: str) -> list[float]:
    """Returns the seconds that the unit waited for a stage, for each step that followed another without a pause.

    The daemon's clock has no pause between the two, so this is the part of the second lease in which its stage did not
    run by its client's clock: the order in transit, and its own report until the daemon has recorded it. Steps that the
    policy delayed do not count.
    """
    own = sorted((span for span in spans if unit in span.units), key=lambda span: span.started_at)
    ends = {round(ended(span) / SAME_MOMENT_S) for span in own}
    return [
        max(0.0, ended(span) - span.started_at - span.worked_s)
        for span in own
        if span.worked_s is not None
        and span.queued_at < span.started_at
        and round(span.started_at / SAME_MOMENT_S) in ends
    ]


def quantile(values: Iterable[float], part: float) -> float:
    """Returns a quantile of a few values, by rank; 0 without any."""
    ordered = sorted(values)
    return ordered[round((len(ordered) - 1) * part)] if ordered else 0.0


def paired(pairs: Iterable[tuple[float, float]]) -> Estimate:
    """Returns the median of the ratios of first to second, minus one; no distribution is assumed."""
    logs = [math.log(first / second) for first, second in pairs]
    if not logs:
        return Estimate(0.0, 0.0, 0.0, 0.0, 0)
    middle = median(logs)
    low, high = interval(logs, CONFIDENCE)
    spread = median(abs(one - middle) for one in logs)
    return Estimate(math.expm1(middle), math.expm1(low), math.expm1(high), math.expm1(spread), len(logs))


def geometric(pairs: Iterable[tuple[float, float]]) -> Estimate:
    """Returns the geometric mean of the ratios of first to second, minus one; its interval by resampling."""
    logs = [math.log(first / second) for first, second in pairs]
    if not logs:
        return Estimate(0.0, 0.0, 0.0, 0.0, 0)
    generator = random.Random(0)
    means = [fmean(generator.choices(logs, k=len(logs))) for _ in range(RESAMPLES)]
    low, high = (quantile(means, part) for part in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    spread = median(abs(one - median(logs)) for one in logs)
    return Estimate(math.expm1(fmean(logs)), math.expm1(low), math.expm1(high), math.expm1(spread), len(logs))


def busiest(units: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the unit with most work."""
    return max(units, key=lambda unit: units[unit][WORKING])


def packed(spans: Iterable[Span], begin: float) -> list[str]:
    """Returns steps in short lines, for a readable file; times in seconds since `begin`."""
    lines = []
    for span in spans:
        times = (span.queued_at - begin, span.started_at - begin, ended(span) - begin, span.worked_s or 0.0)
        words = (span.job, span.task, span.stage, ",".join(span.units), span.outcome, *(f"{t:.3f}" for t in times))
        lines.append(" ".join(map(str, words)))
    return lines


def unpacked(lines: Iterable[str]) -> list[Span]:
    """Returns the steps of such lines."""
    spans = []
    for number, line in enumerate(lines):
        job, task, stage, units, outcome, *times = line.split(" ")
        queued_at, started_at, ended_at, worked_s = map(float, times)
        spans.append(
            Span(number, int(job), int(task), stage, tuple(units.split(",")), queued_at, started_at, ended_at, outcome,
                 worked_s)
        )  # fmt: skip
    return spans
