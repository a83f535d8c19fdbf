"""Sizes that a user asks for."""

import pytest

from autosched.collecting.collector import SIZES_MAX, read_changes
from autosched.errors import RequestError
from autosched.task_bundle import Change


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ((), [Change()]),
        (("batch=1,4",), [Change(), Change(1), Change(4)]),
        (("batch=4", "batch=16"), [Change(), Change(4), Change(16)]),
        (("resolution=0.75,1,1.25",), [Change(), Change(0, 0.75), Change(0, 1.25)]),
        (("batch=2", "resolution=0.5,1"), [Change(), Change(2, 0.5), Change(2)]),
    ],
)
def test_mutations_are_combined_after_the_files_own_size(words: tuple[str, ...], changes: list[Change]) -> None:
    assert read_changes(words) == changes


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("size=4",), "--mutate size=4 is not understood; write batch="),
        (("batch",), "is not understood"),
        (("batch=",), "is not understood"),
        (("batch=a",), "cannot be read"),
        (("batch=1,,2",), "cannot be read"),
        ((f"batch={','.join(map(str, range(1, SIZES_MAX + 1)))}",), f"are {SIZES_MAX + 1} sizes of each network"),
    ],
)
def test_invalid_mutations_are_reported(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        read_changes(words)
