import pytest

from autosched.backend import NO_NUMBER, Timing
from autosched_tvm.evaluation.build_comparison import published
from autosched_tvm.evaluation.verification_messages import Check, VerificationResult


def timing(name: str, median_s: float) -> Timing:
    return Timing(name, (median_s,) * 3, median_s, median_s - 0.1, median_s + 0.1)


@pytest.mark.parametrize(
    ("tuned_s", "right", "choice", "words"),
    [
        (1.0, (True, True), "tuned", ""),
        (3.0, (True, True), "default", "not make the network faster"),
        (2.1, (True, True), "tuned", "about as fast"),
        (1.0, (True, False), "default", "something else"),
        (3.0, (False, True), "tuned", ""),
        (1.0, (False, False), "", "none is handed over"),
    ],
)
def test_only_a_faster_and_correct_build_is_published(
    tuned_s: float, right: tuple[bool, bool], choice: str, words: str
) -> None:
    notes: list[str] = []
    default, tuned = (Check(one, 0.0, 0.0) for one in right)
    verdict = VerificationResult({"default": default, "tuned": tuned}, "ONNX Runtime")
    assert published([timing("default", 2.0), timing("tuned", tuned_s)], verdict, notes) == choice
    assert words in " ".join(notes)


@pytest.mark.parametrize(("right", "choice"), [(True, "tuned"), (False, "")])
def test_a_build_that_is_alone_is_published_if_it_is_correct(right: bool, choice: str) -> None:
    verdict = VerificationResult({"tuned": Check(right, 0.0, 0.0)}, "ONNX Runtime")
    assert published([timing("tuned", 1.0)], verdict, []) == choice


@pytest.mark.parametrize(("error", "words"), [(0.5, "--tolerance SHARE"), (NO_NUMBER, "no tolerance helps")])
def test_more_tolerance_is_advised_only_where_it_can_help(error: float, words: str) -> None:
    notes: list[str] = []
    verdict = VerificationResult({name: Check(False, error, 0.0) for name in ("default", "tuned")}, "ONNX Runtime")
    assert published([timing("default", 2.0), timing("tuned", 1.0)], verdict, notes) == ""
    assert [words in note for note in notes] == [False, True]


@pytest.mark.parametrize(("accepted", "choice"), [(False, ""), (True, "tuned")])
def test_a_build_that_nothing_could_check_is_published_only_if_asked_for(accepted: bool, choice: str) -> None:
    notes: list[str] = []
    verdict = VerificationResult({"tuned": Check(True, 0.0, 0.0)}, "the untuned build", verified=False)
    assert published([timing("tuned", 1.0)], verdict, notes, unverified=accepted) == choice
    assert ["--unverified" in note for note in notes] == [True] * (not accepted)
