"""Failures for which a job is not to blame."""

import errno

import pytest

from autosched.client.hindrances import LIMITS_IN_A_ROW_MAX, PAUSE_FIRST_S, PAUSE_MAX_S, Hindrances
from autosched.errors import Busy, DeviceLost, Hindered, RequestError, StepFailed, StorageFull


def of(number: int) -> OSError:
    return OSError(number, "words", "/a/file")


@pytest.mark.parametrize(
    ("error", "hinders"),
    [
        (of(errno.ENOSPC), True), (of(errno.EDQUOT), True), (of(errno.EROFS), True), (of(errno.EMFILE), True),
        (StorageFull("the disk is full"), True), (Busy("later"), True), (Hindered("no space"), True),
        (of(errno.ENOENT), False), (of(errno.EIO), False), (StepFailed("bad"), False), (DeviceLost("gone"), False),
        (RequestError("wrong"), False), (MemoryError(), False), (ValueError("x"), False),
    ],
)  # fmt: skip
def test_a_full_machine_is_a_hindrance_and_a_wrong_program_is_none(error: Exception, hinders: bool) -> None:
    assert bool(Hindrances().cause(error)) is hinders


def test_the_cause_of_an_error_counts_too() -> None:
    error = StepFailed("import failed")
    error.__cause__ = of(errno.ENOSPC)
    assert "/a/file" in Hindrances().cause(error)


def test_a_limit_that_the_job_itself_may_have_used_up_hinders_for_a_while() -> None:
    hindrances = Hindrances()
    said = [hindrances.cause(of(errno.EMFILE)) for _ in range(LIMITS_IN_A_ROW_MAX + 1)]
    assert all(said[:-1])
    assert said[-1] == ""
    assert hindrances.cause(of(errno.ENOSPC)), "space is waited for without end"
    hindrances.over()
    assert hindrances.cause(of(errno.EMFILE))


def test_pauses_grow_to_a_maximum_and_begin_anew_after_a_success() -> None:
    hindrances = Hindrances()
    pauses = [hindrances.pause_s() for _ in range(12)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (PAUSE_FIRST_S, PAUSE_MAX_S)
    hindrances.over()
    assert hindrances.pause_s() == PAUSE_FIRST_S
