"""Files of collected tasks, and the sizes of networks."""

from pathlib import Path

import pytest

from autosched.errors import ModelRejected, RequestError
from autosched.model import Program
from autosched.task_bundle import MAGIC, BundledTask, Change, TaskBundle, read, write

BUNDLE = TaskBundle((BundledTask("conv2d", "c0ffee", "conv2d 3x8x8 -> 8x8x8, 3x3", 1e6, 3, Program("tvm 0.27", b"x")),))


def test_a_file_has_what_was_written(tmp_path: Path) -> None:
    write(BUNDLE, tmp_path / "a.tasks")
    write(BUNDLE, tmp_path / "b.tasks")
    assert read(tmp_path / "a.tasks") == BUNDLE
    assert (tmp_path / "a.tasks").read_bytes() == (tmp_path / "b.tasks").read_bytes()


@pytest.mark.parametrize("cut", [0, 5, len(MAGIC), len(MAGIC) + 1, -1])
def test_a_truncated_file_is_refused_with_what_to_do(cut: int, tmp_path: Path) -> None:
    write(BUNDLE, tmp_path / "whole.tasks")
    (tmp_path / "cut.tasks").write_bytes((tmp_path / "whole.tasks").read_bytes()[:cut])
    with pytest.raises(ModelRejected, match=r"cut\.tasks is no whole file of collected tasks.*autosched collect"):
        read(tmp_path / "cut.tasks")


@pytest.mark.parametrize(
    ("text", "change", "words"),
    [
        ("", Change(), ""),
        ("batch=4", Change(4), "batch 4"),
        ("resolution=0.75", Change(0, 0.75), "resolution 0.75"),
        ("batch=16 resolution=1.25", Change(16, 1.25), "batch 16, resolution 1.25"),
        ("resolution=1", Change(), ""),
    ],
)
def test_sizes_are_read_and_told(text: str, change: Change, words: str) -> None:
    assert Change.read(text) == change
    assert Change.read(change.text) == change
    assert change.words == words


@pytest.mark.parametrize(
    "text", ["batch=none", "batch=-1", "batch=1.5", "resolution=0", "resolution=-1", "resolution=1e9"]
)
def test_wrong_sizes_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        Change.read(text)
