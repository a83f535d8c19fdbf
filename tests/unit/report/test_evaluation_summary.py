import re

import pytest
from msgspec.structs import replace

from autosched import report
from autosched.backend import NO_NUMBER, Difference
from autosched.report import verdict
from autosched.report.evaluation_summary import Standing, advice, starts, starts_sentence
from samples import evaluation, job_view, records, spans, timing


def test_ratios_are_those_of_the_medians() -> None:
    found = verdict(evaluation())
    assert found.speedup == pytest.approx(25.0)
    assert found.rival_ratio == pytest.approx(0.016 / 0.0046)
    assert found.remarks == {"default": "x25.0 slower than tuned"}


@pytest.mark.parametrize(
    ("tuned_s", "standing", "headline"),
    [
        (0.0023, Standing.FASTER, "x2.00 faster than ONNX Runtime: 2.30 ms against 4.60 ms"),
        (0.016, Standing.SLOWER, "x3.48 SLOWER than ONNX Runtime: 16.0 ms against 4.60 ms"),
        (0.00465, Standing.EQUAL, "as fast as ONNX Runtime, within the noise: 4.65 ms against 4.60 ms"),
    ],
)
def test_the_headline_compares_with_onnx_runtime(tuned_s: float, standing: Standing, headline: str) -> None:
    found = verdict(evaluation(tuned_s=tuned_s))
    assert (found.standing, found.headline) == (standing, headline)


def test_a_rejected_build_is_not_said_to_be_replaced_where_none_is_handed_over() -> None:
    found = verdict(replace(evaluation(), published=""))
    assert found.remarks["tuned"] == "not used: its outputs differ"
    assert "none is handed over" in found.headline
    replaced = verdict(replace(evaluation(), published="default"))
    assert replaced.remarks["tuned"] == "not used: the untuned build is handed over"


def test_a_build_that_nothing_could_check_is_said_to_be_one() -> None:
    refused = verdict(replace(evaluation(), published="", verified=False))
    assert "no other engine could check" in refused.headline
    assert refused.remarks["tuned"] == "not used: nothing could check its outputs"
    assert "NOT VERIFIED" in refused.outputs
    assert "NOT VERIFIED" in verdict(replace(evaluation(), verified=False)).outputs


def test_a_faster_untuned_build_is_not_called_slower() -> None:
    timings = (timing("default", 0.008), *evaluation().timings[1:])
    found = verdict(replace(evaluation(), timings=timings))
    assert found.remarks["default"].startswith("x2.00 faster than tuned")


def test_the_start_of_each_engine_is_told() -> None:
    assert starts(evaluation()) == [
        "a new process has its first outputs after 20.0 ms (12.0 ms to load), 60.0 MiB of memory",
        "ONNX Runtime: after 150 ms (110 ms to load), 90.0 MiB",
    ]
    assert starts(replace(evaluation(), starts=())) == []
    assert starts_sentence(replace(evaluation(), starts=())) == ""
    sentence = starts_sentence(evaluation())
    assert sentence.startswith("A new process has its first outputs")
    assert sentence.endswith("90.0 MiB.")
    told = report.gather(job_view(), evaluation(), records(), spans())
    assert sentence in report.page(told)


def test_the_form_of_the_model_is_told() -> None:
    forms = (timing("as it is", 0.009), timing("with fixed shapes", 0.0046))
    found = verdict(replace(evaluation(), form="with fixed shapes", forms=forms))
    assert found.headline.endswith("16.0 ms against 4.60 ms, with fixed shapes")
    assert found.remarks["onnxruntime"] == "the model with fixed shapes, the fastest of 2 forms"


def test_without_onnx_runtime_the_headline_says_so() -> None:
    found = verdict(replace(evaluation(), timings=evaluation().timings[:2]))
    assert found.standing is Standing.UNKNOWN
    assert found.headline == "16.0 ms, x25.0 faster than the untuned build; no other engine was measured"


@pytest.mark.parametrize(
    ("tuned_s", "gain", "words"),
    [
        (0.0023, 1.5, ""),
        (0.005, 1.2, "Stay with ONNX Runtime .* x1.20 faster, enough to pass it: .*--trials 200 --learn-from 7"),
        (0.016, 1.2, "not enough to pass it"),
        (0.016, 1.0, "would hardly help"),
        (0.016, None, "More trials may"),
    ],
)
def test_what_to_do_about_a_slow_module(tuned_s: float, gain: float | None, words: str) -> None:
    said = advice(verdict(evaluation(tuned_s=tuned_s)), gain, trials=100, job=7)
    assert re.search(words, said)
    assert bool(said) == bool(words)


def test_a_build_that_is_not_published_is_not_boasted_of() -> None:
    found = verdict(evaluation(tuned_s=0.5, published="default"))
    assert found.speedup == 1.0
    assert "not used" in found.remarks["tuned"]
    assert "400 ms against 4.60 ms" in found.headline


def test_a_gain_within_the_noise_is_called_so() -> None:
    assert "within the noise" in verdict(evaluation(tuned_s=0.39995)).remarks["default"]


def test_outputs() -> None:
    assert verdict(evaluation()).outputs == (
        "outputs equal to ONNX Runtime 1.31.1 (largest difference 4.1e-07, allowed 1.0e-04)"
    )
    assert "DIFFER" in verdict(replace(evaluation(), outputs_equal=False)).outputs


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (Difference("y", 0, (), "shape (2,)", "shape (3,)", 0.0, "tuned"), "another shape"),
        (Difference("y", 0, (1,), "3.0", "nan", 1e-5, "tuned"), "difference infinite or not a number"),
        (None, "there are no outputs to compare"),
    ],
)
def test_a_difference_that_is_no_number_is_told_in_words(difference: Difference | None, words: str) -> None:
    broken = replace(evaluation(), outputs_equal=False, max_abs_error=NO_NUMBER, difference=difference)
    assert verdict(broken).outputs == f"outputs DIFFER from {broken.reference} ({words})"
    assert "allowed 0" not in verdict(broken).difference


def test_only_what_was_measured_is_compared() -> None:
    alone = replace(evaluation(), timings=evaluation().timings[1:2])
    found = verdict(alone)
    assert (found.speedup, found.rival_ratio, found.remarks) == (None, None, {})


DIFFERENT = Difference("y", 1, (0, 3), "0.5", "nan", 1e-5, "tuned")


def test_a_rejected_build_is_told_with_the_element_and_both_values() -> None:
    said = verdict(replace(evaluation(), difference=DIFFERENT, samples=3)).difference
    assert said == "the tuned build was rejected: y[0, 3] of sample 1 is nan, not 0.5 (allowed 1.0e-05)"
    assert verdict(evaluation()).difference == ""


def test_without_a_right_build_the_headline_says_that_none_is_handed_over() -> None:
    found = verdict(replace(evaluation(), published="", outputs_equal=False))
    assert "none is handed over" in found.headline
