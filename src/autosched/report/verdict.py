"""What an evaluation means: the numbers people ask for first, once for the terminal and the page."""

from msgspec import Struct

from autosched.backend import Evaluation, Timing
from autosched.text import units
from autosched.text.units import latency, ratio

LABELS = {"default": "default", "tuned": "tuned", "onnxruntime": "ONNX Runtime"}


class Verdict(Struct, frozen=True):
    """The evaluation in words and ratios. `None` where the build was not measured."""

    speedup: float | None
    """Default latency over that of the published build."""
    onnxruntime_ratio: float | None
    """Latency of the published build over that of ONNX Runtime: above 1, ONNX Runtime is faster."""
    outputs: str
    remarks: dict[str, str]
    """Per build, what its latency says."""


def label(timing: Timing) -> str:
    """The build's name for people."""
    return LABELS.get(timing.name, timing.name)


def verdict(evaluation: Evaluation) -> Verdict:
    """Judge an evaluation."""
    by_name = {timing.name: timing for timing in evaluation.timings}
    default, tuned, reference = (by_name.get(name) for name in ("default", "tuned", "onnxruntime"))
    published = by_name.get(evaluation.published, tuned)
    remarks: dict[str, str] = {}
    if default is not None and tuned is not None:
        remarks["tuned"] = _against_default(default, tuned, published=evaluation.published == "tuned")
    onnxruntime_ratio = None
    if reference is not None and published is not None:
        onnxruntime_ratio = published.median_s / reference.median_s
        faster = onnxruntime_ratio > 1
        times = ratio(onnxruntime_ratio if faster else 1 / onnxruntime_ratio)
        remarks["onnxruntime"] = f"{times} faster than ours" if faster else f"ours is {times} faster"
    return Verdict(
        speedup=default.median_s / published.median_s if default is not None and published is not None else None,
        onnxruntime_ratio=onnxruntime_ratio,
        outputs=_outputs(evaluation),
        remarks=remarks,
    )


def _against_default(default: Timing, tuned: Timing, *, published: bool) -> str:
    if not published:
        return "not used: the default build is handed over"
    noise = ", within the noise" if tuned.high_s >= default.low_s else ""
    return f"{ratio(default.median_s / tuned.median_s)} faster than default{noise}"


def _outputs(evaluation: Evaluation) -> str:
    difference = (
        f"largest difference {units.tiny(evaluation.max_abs_error)}, allowed {units.tiny(evaluation.tolerance)}"
    )
    word = "equal to" if evaluation.outputs_equal else "DIFFER from"
    return f"outputs {word} {evaluation.reference} ({difference})"


def interval(timing: Timing) -> str:
    """Bounds of the median: "[15.9 ms, 16.4 ms]"."""
    return f"[{latency(timing.low_s)}, {latency(timing.high_s)}]"
