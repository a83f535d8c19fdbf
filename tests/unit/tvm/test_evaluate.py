import pytest

from autosched.backend import Timing
from autosched.tvm.evaluate import published


def timing(name: str, median_s: float) -> Timing:
    return Timing(name, (median_s,) * 3, median_s, median_s, median_s)


@pytest.mark.parametrize(
    ("tuned_s", "right", "choice", "words"),
    [
        (1.0, True, "tuned", ""),
        (3.0, True, "default", "not make the network faster"),
        (1.0, False, "default", "something else"),
    ],
)
def test_only_what_is_faster_and_right_is_published(tuned_s: float, right: bool, choice: str, words: str) -> None:
    notes: list[str] = []
    assert published([timing("default", 2.0), timing("tuned", tuned_s)], tuned_right=right, notes=notes) == choice
    assert words in " ".join(notes)
