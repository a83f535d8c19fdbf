"""The conclusions of an evaluation, for terminal and page."""

from enum import StrEnum

from msgspec import Struct

from autosched import formatting
from autosched.backend import NO_NUMBER, RIVALS, Difference, Evaluation, Timing
from autosched.formatting import latency, ratio, speed
from autosched.records.statistics import clearly_faster

LABELS = {"default": "untuned", "tuned": "tuned"} | RIVALS
NOTABLE_GAIN = 1.01
"""Minimum speed-up by twice the trials that is worth advising."""


class Standing(StrEnum):
    """Comparison of the published build with the baseline."""

    FASTER = "faster"
    EQUAL = "equal"  # within the noise of the two
    SLOWER = "slower"
    UNKNOWN = "unknown"  # no baseline was measured


class EvaluationSummary(Struct, frozen=True):
    """The evaluation in words and ratios; None for builds that were not measured."""

    standing: Standing
    headline: str
    """The published build compared with the baseline, or with the untuned build if there is no baseline."""
    rival: str
    """Name of the baseline engine; empty if it was not measured."""
    speedup: float | None
    """Latency of the untuned build divided by that of the published build."""
    rival_ratio: float | None
    """Latency of the published build divided by that of the baseline: above 1, the baseline is faster."""
    outputs: str
    difference: str
    """The largest difference of a rejected build; empty if none was rejected."""
    remarks: dict[str, str]
    """A remark about the latency of each build."""


def label(timing: Timing) -> str:
    """The build's name for people."""
    return LABELS.get(timing.name, timing.name)


def verdict(evaluation: Evaluation) -> EvaluationSummary:
    """Draw conclusions from an evaluation."""
    by_name = {timing.name: timing for timing in evaluation.timings}
    default, tuned = (by_name.get(name) for name in ("default", "tuned"))
    reference = next((timing for name, timing in by_name.items() if name in RIVALS), None)
    published = by_name.get(evaluation.published, tuned)
    remarks: dict[str, str] = {}
    if default is not None and tuned is not None:
        if evaluation.published == "tuned":
            noise = ", within the noise" if tuned.high_s >= default.low_s else ""
            remarks["default"] = f"{speed(tuned.median_s, default.median_s)} than tuned{noise}"
        else:
            untuned = evaluation.published == "default"
            why = "its outputs differ" if evaluation.verified else "nothing could check its outputs"
            remarks["tuned"] = f"not used: {'the untuned build is handed over' if untuned else why}"
    if reference is not None and evaluation.form:
        best = f", the fastest of {len(evaluation.forms)} forms" if len(evaluation.forms) > 1 else ""
        remarks[reference.name] = f"the model {evaluation.form}{best}"
    standing, headline = _headline(evaluation, published, reference, default)
    return EvaluationSummary(
        standing=standing,
        headline=headline,
        rival=label(reference) if reference is not None else "",
        speedup=default.median_s / published.median_s if default is not None and published is not None else None,
        rival_ratio=published.median_s / reference.median_s
        if reference is not None and published is not None
        else None,
        outputs=_outputs(evaluation),
        difference=_difference(evaluation.difference),
        remarks=remarks,
    )


def _headline(
    evaluation: Evaluation, ours: Timing | None, rival: Timing | None, untuned: Timing | None
) -> tuple[Standing, str]:
    if ours is None:
        return Standing.UNKNOWN, "the network was not measured"
    if not evaluation.published and not evaluation.verified:
        return Standing.UNKNOWN, "no other engine could check what the network computes, so that none is handed over"
    if not evaluation.published:
        return Standing.UNKNOWN, f"no build computes what {evaluation.reference} does, so that none is handed over"
    if rival is None:
        against = ""
        if untuned is not None and untuned.name != ours.name:
            against = f", {speed(untuned.median_s, ours.median_s)} than the untuned build"
        return Standing.UNKNOWN, f"{latency(ours.median_s)}{against}; no other engine was measured"
    form = f", {evaluation.form}" if evaluation.form else ""
    both = f"{latency(ours.median_s)} against {latency(rival.median_s)}{form}"
    if clearly_faster(ours, rival):
        return Standing.FASTER, f"{ratio(rival.median_s / ours.median_s)} faster than {label(rival)}: {both}"
    if clearly_faster(rival, ours):
        return Standing.SLOWER, f"{ratio(ours.median_s / rival.median_s)} SLOWER than {label(rival)}: {both}"
    return Standing.EQUAL, f"as fast as {label(rival)}, within the noise: {both}"


def advice(found: EvaluationSummary, gain: float | None, *, trials: int, job: int) -> str:
    """Advice about a module that is not faster than its baseline; empty if there is nothing to do.

    `gain`: expected ratio of latencies with twice the trials; None if unknown.
    """
    if found.standing not in (Standing.SLOWER, Standing.EQUAL) or found.rival_ratio is None:
        return ""
    stay = f"Stay with {found.rival} for now. " if found.standing is Standing.SLOWER else ""
    if gain is None or trials == 0:
        return f"{stay}More trials may make it faster"
    if gain < NOTABLE_GAIN:
        return (
            f"{stay}More trials would hardly help: the second half of them gained {formatting.share(gain - 1.0, 1.0)}"
        )
    enough = "enough to pass it" if gain > found.rival_ratio else "not enough to pass it"
    return (
        f"{stay}Twice the trials may make it {ratio(gain)} faster, {enough}:"
        f"  autosched tune MODEL --trials {2 * trials} --learn-from {job}"
    )


def _outputs(evaluation: Evaluation) -> str:
    difference = distance(evaluation)
    if evaluation.max_abs_error < NO_NUMBER:
        difference += f", allowed {formatting.tiny(evaluation.tolerance)}"
    if not evaluation.verified:
        return "outputs NOT VERIFIED: no other engine could compute them"
    word = "equal to" if evaluation.outputs_equal else "DIFFER from"
    samples = f", {formatting.count(evaluation.samples, 'sample')}" if evaluation.samples > 1 else ""
    return f"outputs {word} {evaluation.reference} ({difference}{samples})"


def distance(evaluation: Evaluation) -> str:
    """How far the outputs are from the reference, in words."""
    if evaluation.max_abs_error < NO_NUMBER:
        return f"largest difference {formatting.tiny(evaluation.max_abs_error)}"
    found = evaluation.difference
    if found is None:
        return "there are no outputs to compare"
    return "difference infinite or not a number" if found.tolerance else "another shape"


def starts(evaluation: Evaluation) -> list[str]:
    """The start of each engine: the time until the first outputs, and the memory; empty if it was not measured."""
    times = [
        f"after {latency(one.load_s + one.first_s)} ({latency(one.load_s)} to load), {formatting.size(one.peak_bytes)}"
        for one in evaluation.starts
    ]
    if not times:
        return []
    others = [f"{RIVALS.get(one.engine, one.engine)}: " for one in evaluation.starts[1:]]
    return [f"a new process has its first outputs {times[0]} of memory", *map(str.__add__, others, times[1:])]


def starts_sentence(evaluation: Evaluation) -> str:
    """The start of each engine in a sentence; empty if it was not measured."""
    told = "; ".join(starts(evaluation))
    return f"{told[0].upper()}{told[1:]}." if told else ""


def _difference(found: Difference | None) -> str:
    if found is None:
        return ""
    place = f"{found.output}{list(found.index)}" if found.index else found.output
    who = f"the {found.build} build" if found.build else "a build"
    return f"{who} was rejected: {place} of sample {found.sample} is {found.got}, not {found.expected}" + (
        f" (allowed {formatting.tiny(found.tolerance)})" if found.tolerance else ""
    )


def interval(timing: Timing) -> str:
    """Bounds of the median: "[15.9 ms, 16.4 ms]"."""
    return f"[{latency(timing.low_s)}, {latency(timing.high_s)}]"
