"""A surrounding is judged by its exit code and its words, and passes for no other reason."""

import pytest

from machines.case import Failed, Impossible
from machines.surroundings import LACKING, Surrounding, _judged

WORKS, REFUSED = Surrounding("works", ""), Surrounding("is refused", "", refused="ulimit -n")


def test_the_words_of_success_and_of_a_refusal_are_told() -> None:
    assert _judged(WORKS, 0, " outputs equal to it (0)\nNext:\n") == "outputs equal to it (0)"
    assert _judged(REFUSED, 3, "starting\nautosched: raise it: ulimit -n 99\n") == "autosched: raise it: ulimit -n 99"


@pytest.mark.parametrize(
    ("one", "code", "said"),
    [
        (WORKS, 1, "outputs equal"),
        (WORKS, -1, ""),
        (WORKS, 0, "Traceback (most recent call last):\noutputs equal"),
        (WORKS, 0, "outputs equal\ncpu0 drained: quarantined: it crashed"),
        (WORKS, 0, "OSError: [Errno 22] Invalid argument"),
        (REFUSED, 0, "autosched: ulimit -n"),
        (REFUSED, 3, "autosched: something else"),
        (REFUSED, 3, "bash: ulimit -n: cannot"),
        (REFUSED, 3, "autosched: this is a bug in autosched: ulimit -n"),
    ],
)
def test_anything_else_fails(one: Surrounding, code: int, said: str) -> None:
    with pytest.raises(Failed):
        _judged(one, code, said)


def test_what_a_machine_lacks_is_no_failure() -> None:
    with pytest.raises(Impossible, match="has one core"):
        _judged(WORKS, LACKING, "some words\nhas one core\n")
