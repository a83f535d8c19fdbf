"""The section of RESULTS.md on trained networks: one row for each network, and the means that the bars are about."""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

ENGINES = ("onnxruntime", "openvino", "ncnn", "mnn")
NAMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "ncnn": "ncnn", "mnn": "MNN"}
WRONG = 0.05
"""Difference of an output from ONNX Runtime's, in parts of its largest value, that marks an engine as wrong."""


def section(told: Mapping[str, Any]) -> list[str]:
    """The lines of the section."""
    rows = list(told["networks"].values())
    lines = [
        "## Trained networks",
        "",
        "`make bench-networks` (`benchmarks/trained_networks.py`): each network tuned with all defaults, then",
        "timed in turns with the engines that users run otherwise, each in a process of its own. Medians in",
        "milliseconds, float32; an asterisk marks outputs unlike ONNX Runtime's. ONNX Runtime has the fastest",
        "of three forms of the model: as it is, with fixed shapes, simplified. Only networks of the half `test` count",
        "for the means: nothing was developed on them. *Products* is the time that the network's convolutions and",
        "matrix products take at the peak of the cores (`benchmarks/roofline.py`): without Winograd or integers no",
        "engine can be faster.",
        "",
    ]
    for half in ("test", "training"):
        for cores in sorted({row["cores"] for row in rows}):
            chosen = [row for row in rows if row["half"] == half and row["cores"] == cores]
            if chosen:
                lines += _table(chosen, half, cores)
    return lines


def _table(rows: Sequence[Mapping[str, Any]], half: str, cores: int) -> list[str]:
    measured = [row for row in rows if "autosched" in row.get("median_s", {})]
    lines = [f"### Networks of the half `{half}`, {cores} core{'s' * (cores > 1)}", ""]
    over_ort, over_best = _ratios(measured, ("onnxruntime",)), _ratios(measured, ENGINES)
    if over_ort:
        above = sum(ratio > 1 for ratio in over_ort)
        lines += [
            f"Geometric means of {len(over_ort)} networks: latency over ONNX Runtime's {geometric_mean(over_ort):.2f}"
            f" ({above} above 1.00, the worst {max(over_ort):.2f}), over the fastest engine's"
            f" {geometric_mean(over_best):.2f}.",
            *_times(measured),
            "",
        ]
    lines += [
        "| network | kind | autosched | ONNX Runtime (form) | OpenVINO | ncnn | MNN | products | / ONNX Runtime"
        " | / fastest | trials | minutes |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in measured:
        rivals = [_latency(row, engine) for engine in ENGINES]
        lines.append(
            f"| {row['name']} | {row['kind']} | {_latency(row, 'autosched')} | {rivals[0]} ({row['form']}) |"
            f" {' | '.join(rivals[1:])} | {1e3 * row['products_s']:.3g} |"
            f" {_ratio(row, ('onnxruntime',)):.2f} | {_ratio(row, ENGINES):.2f}"
            f" | {row['trials']} | {row['took_s'] / 60:.1f} |"
        )
    lines += [""]
    failed = [row for row in rows if "failed" in row]
    if failed:
        lines += [
            "Without a tuned module: " + "; ".join(f"{row['name']} ({row['failed'][:160]})" for row in failed) + ".",
            "",
        ]
    unequal = [row["name"] for row in measured if not row["outputs_equal"]]
    if unequal:
        lines += [f"Outputs differ from ONNX Runtime's by more than is allowed: {', '.join(unequal)}.", ""]
    return lines


def _times(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """When the first module that is faster than ONNX Runtime was ready, and what the operators' times explain."""
    after_s = [math.inf if (seconds := row["faster_after_s"]) is None else seconds for row in rows]
    passed, middle_s = sum(map(math.isfinite, after_s)), median(after_s)
    middle = f"median {middle_s:.0f} s after the job's start" if math.isfinite(middle_s) else "median: never"
    counted = [row for row in rows if row["products_s"] and _takes_part(row, "onnxruntime")]
    bound = geometric_mean([row["products_s"] / row["median_s"]["onnxruntime"] for row in counted] or [1.0])
    sums = sorted(row["operators_over_whole"] for row in rows)
    return [
        f"A module faster than ONNX Runtime was there to be fetched during the search for {passed} of them ({middle}).",
        f"Sum of the operators' times over the network's: {sums[0]:.3f} to {sums[-1]:.3f}.",
        f"The products of {len(counted)} of them, at the cores' peak, take {bound:.2f} of ONNX Runtime's latency"
        " (geometric mean).",
    ]


def _latency(row: Mapping[str, Any], engine: str) -> str:
    """Median in milliseconds; marked where the outputs are not ONNX Runtime's."""
    if engine not in row["median_s"]:
        return "-"
    mark = "" if _takes_part(row, engine) else "*"
    return f"{1e3 * row['median_s'][engine]:.3g}{mark}"


def _ratio(row: Mapping[str, Any], engines: Sequence[str]) -> float:
    """Our latency over that of the fastest of these engines, of those with ONNX Runtime's outputs."""
    median_s = row["median_s"]
    return float(median_s["autosched"] / min(median_s[engine] for engine in engines if _takes_part(row, engine)))


def _ratios(rows: Sequence[Mapping[str, Any]], engines: Sequence[str]) -> list[float]:
    return [_ratio(row, engines) for row in rows if any(_takes_part(row, engine) for engine in engines)]


def _takes_part(row: Mapping[str, Any], engine: str) -> bool:
    return engine in row["median_s"] and row["difference"].get(engine, 0.0) <= WRONG


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of at least one positive ratio."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
