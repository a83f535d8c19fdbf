"""Early stopping."""

import pytest

from autosched.conformance.option_help import option_help
from autosched_tvm.tuning.early_stopping import HASTE, NEAR, PROGRESS, SEVERAL, EarlyStopping
from autosched_tvm.tuning.options import Options


def after(patience: int, *latencies_s: float | None, progress: float = 0.0) -> EarlyStopping:
    plateau = EarlyStopping(patience, progress)
    plateau.update([(str(i).encode(), [s] if s else []) for i, s in enumerate(latencies_s)])
    return plateau


@pytest.mark.parametrize(
    ("latencies_s", "over"),
    [
        ((), False),
        ((3.0, 3.0, 3.0), False),
        ((3.0, 3.0, 3.0, 3.0), True),
        ((3.0, 4.0, 4.0, 2.0, 4.0, 4.0), False),
        ((3.0, 2.996, 2.99, 2.986), False),
        ((3.0, None, None, None), True),
        ((None, None, None, None, None), False),
    ],
)
def test_a_search_ends_after_enough_trials_without_improvement(
    latencies_s: tuple[float | None, ...], over: bool
) -> None:
    assert after(3, *latencies_s).over is over


@pytest.mark.parametrize(("latencies_s", "over"), [((3.0, 2.996, 2.99), True), ((3.0, 2.99, 2.98), False)])
def test_small_improvements_count_when_they_add_up(latencies_s: tuple[float, ...], over: bool) -> None:
    assert after(2, *latencies_s, progress=0.005).over is over


@pytest.mark.parametrize(
    ("latencies_s", "over"),
    [
        ((3.0, 3.01, 3.02, 3.03, 3.2), True),
        ((3.0, 3.01, 3.02, 3.2, 3.2), False),
        ((3.0, 3.01, 3.02, 3.03, 3.2, 2.0), False),
        ((3.0, None, None, None, None), False),
    ],
    ids=["four are near", "three are", "near what was the best", "failures are not"],
)
def test_a_search_ends_earlier_when_several_trials_came_near_the_best(
    latencies_s: tuple[float | None, ...], over: bool
) -> None:
    assert after(12, *latencies_s).over is over


def test_without_early_stopping_a_search_never_ends_early() -> None:
    assert not after(0, *[1.0] * 1000).over


def test_a_second_measurement_is_no_trial() -> None:
    plateau = after(3, 1.0, 2.0, 2.0)
    plateau.update([(b"1", [2.0])])
    assert not plateau.over
    plateau.update([(b"3", [2.0])])
    assert plateau.over


def test_a_second_measurement_may_be_the_best() -> None:
    plateau = after(2, 2.0, 3.0, 3.0)
    assert plateau.over
    plateau.update([(b"1", [1.0, 1.0, 9.0])])
    assert not plateau.over


def test_the_help_of_early_stopping_contains_its_constants() -> None:
    """The help text once gave other figures than the constants."""
    (told,) = [one.text for one in option_help(Options) if one.name == "early_stopping"]
    assert f"{SEVERAL} trials came within {NEAR:.0%}" in told
    assert f"1/{HASTE} of that number" in told
    assert ("more than" in told) is bool(PROGRESS)
