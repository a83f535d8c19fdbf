import pytest
from msgspec.structs import replace

from autosched.report import verdict
from samples import evaluation


def test_ratios_are_those_of_the_medians() -> None:
    found = verdict(evaluation())
    assert found.speedup == pytest.approx(25.0)
    assert found.onnxruntime_ratio == pytest.approx(0.016 / 0.0046)
    assert found.remarks == {"tuned": "x25.0 faster than default", "onnxruntime": "x3.48 faster than ours"}


def test_a_tuned_build_that_beats_onnx_runtime() -> None:
    assert verdict(evaluation(tuned_s=0.0023)).remarks["onnxruntime"] == "ours is x2.00 faster"


def test_a_build_that_is_not_published_is_not_boasted_of() -> None:
    found = verdict(evaluation(tuned_s=0.5, published="default"))
    assert found.speedup == 1.0
    assert "not used" in found.remarks["tuned"]


def test_a_gain_within_the_noise_is_called_so() -> None:
    assert "within the noise" in verdict(evaluation(tuned_s=0.39995)).remarks["tuned"]


def test_outputs() -> None:
    assert verdict(evaluation()).outputs == (
        "outputs equal to ONNX Runtime 1.31.1 (largest difference 4.1e-07, allowed 1.0e-04)"
    )
    assert "DIFFER" in verdict(replace(evaluation(), outputs_equal=False)).outputs


def test_only_what_was_measured_is_compared() -> None:
    alone = replace(evaluation(), timings=evaluation().timings[1:2])
    found = verdict(alone)
    assert (found.speedup, found.onnxruntime_ratio, found.remarks) == (None, None, {})
