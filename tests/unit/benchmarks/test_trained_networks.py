"""The comparison with other engines: what counts as different, and the means that are reported."""

import math
from typing import Any

import numpy as np
import pytest
import trained_networks
import trained_networks_page as page


def row(name: str, *, half: str = "test", **median_s: float) -> dict[str, Any]:
    return {
        "name": name, "kind": "ocr", "half": half, "cores": 1, "trials": 10, "took_s": 60.0, "outputs_equal": True,
        "faster_after_s": 30.0, "operators_over_whole": 0.98, "products_s": 5e-4, "median_s": median_s,
        "difference": {}, "form": "simplified", "left_out": {},
    }  # fmt: skip


def test_difference_is_in_parts_of_an_outputs_largest_value() -> None:
    expected = [np.array([[100.0, 0.0]], "float32"), np.array([1.0], "float32")]
    assert trained_networks.difference(expected, [np.array([99.0, 0.0]), np.array([1.0])]) == pytest.approx(0.01)


def test_outputs_of_another_shape_or_number_differ_without_bound() -> None:
    expected = [np.zeros((1, 2, 3))]
    assert trained_networks.difference(expected, [np.zeros((3, 2))]) == math.inf
    assert trained_networks.difference(expected, []) == math.inf


def test_means_are_geometric_and_over_the_fastest_engine() -> None:
    told = {"networks": {
        "a": row("a", autosched=1.0, onnxruntime=2.0, ncnn=1.0),
        "b": row("b", autosched=1.0, onnxruntime=0.5),
        "c": row("c", half="training", autosched=9.0, onnxruntime=1.0),
    }}  # fmt: skip
    text = "\n".join(page.section(told))
    assert "Geometric means of 2 networks: latency over ONNX Runtime's 1.00 (1 above 1.00, the worst 2.00)" in text
    assert "over the fastest engine's 1.41" in text
    assert "`training`, 1 core" in text


def test_an_engine_with_other_outputs_is_no_rival() -> None:
    one = row("a", autosched=1.0, onnxruntime=2.0, mnn=0.001)
    one["difference"] = {"mnn": 0.5}
    assert "over the fastest engine's 0.50" in "\n".join(page.section({"networks": {"a": one}}))


def test_networks_that_never_pass_count_as_infinite_in_the_median() -> None:
    rows = {name: row(name, autosched=1.0, onnxruntime=2.0) for name in "abc"}
    rows["a"]["faster_after_s"] = None
    assert "for 2 of them (median 30 s after" in "\n".join(page.section({"networks": rows}))
    rows["b"]["faster_after_s"] = None
    assert "for 1 of them (median: never)" in "\n".join(page.section({"networks": rows}))


def test_a_network_that_failed_is_named_with_its_reason() -> None:
    told = {"networks": {"a": {"name": "a", "kind": "ocr", "half": "test", "cores": 1, "failed": "operator X"}}}
    assert "Without a tuned module: a (operator X)." in page.section(told)


def test_an_engine_with_other_outputs_is_marked() -> None:
    told = {"networks": {"a": row("a", autosched=1e-3, onnxruntime=2e-3, mnn=3e-3)}}
    told["networks"]["a"]["difference"] = {"mnn": math.inf, "autosched": 1e-7}
    text = "\n".join(page.section(told))
    assert "| 1 | 2 (simplified) | - | - | 3* | 0.5 |" in text
